//! The stored corpora of the fuzz targets that take long to build (`cargo xtask fuzz --large`), without a fuzzer.

use std::fs;
use std::path::PathBuf;

#[path = "../../../../fuzz/properties/messages.rs"]
mod messages;
#[path = "../../../../fuzz/properties/wheels.rs"]
mod wheels;
#[path = "../../../../fuzz/properties/worker_frames.rs"]
mod worker_frames;

/// Checks each input of a corpus.
fn check_corpus(target: &str, check: fn(&[u8])) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs: Vec<PathBuf> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!inputs.is_empty(), "{}", corpus.display());
    for input in inputs {
        // Shown if the check fails.
        eprintln!("{}", input.display());
        check(&fs::read(&input).unwrap());
    }
}

#[test]
fn messages_have_their_properties() {
    check_corpus("messages", messages::check);
}

#[test]
fn wheels_have_their_properties() {
    check_corpus("wheels", wheels::check);
}

#[test]
fn frames_of_workers_have_their_properties() {
    check_corpus("worker_frames", worker_frames::check);
}
