//! The fuzz targets that take long to build (`cargo xtask fuzz --large`), without instrumentation: they run on their
//! stored corpora, and on random changes of these inputs.

use std::fs;
use std::path::PathBuf;

use fastrand::Rng;

#[path = "../../../../fuzz/properties/messages.rs"]
mod messages;
#[path = "../../../../fuzz/properties/wheels.rs"]
mod wheels;
#[cfg(target_os = "linux")]
#[path = "../../../../fuzz/properties/worker_frames.rs"]
mod worker_frames;

/// The number of changed inputs that are checked.
const CHANGED_INPUTS: usize = 10_000;
/// The seed of the random changes, so that a failure can be repeated.
const SEED: u64 = 1;

/// An input that is shown if its check fails.
struct Input(Vec<u8>);

impl Drop for Input {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: b\"{}\"", self.0.escape_ascii());
        }
    }
}

/// Checks each input of a corpus, and changed ones.
fn check_corpus(target: &str, check: fn(&[u8])) {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}", corpus.display());
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    let mut random = Rng::with_seed(SEED);
    let changed = std::iter::repeat_with(|| change(&inputs, &mut random)).take(CHANGED_INPUTS);
    for bytes in inputs.iter().cloned().chain(changed) {
        let input = Input(bytes);
        check(&input.0);
    }
}

/// Returns one of the inputs with a few changes.
fn change(inputs: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = inputs[random.usize(..inputs.len())].clone();
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..4) {
            0 => bytes.insert(at, random.u8(..)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.u8(..8)),
            2 => drop(bytes.drain(at..random.usize(at..=bytes.len()))),
            _ => {
                let other = &inputs[random.usize(..inputs.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
        }
    }
    bytes
}

#[test]
fn messages_have_their_properties() {
    check_corpus("messages", messages::check);
}

#[test]
fn wheels_have_their_properties() {
    check_corpus("wheels", wheels::check);
}

#[cfg(target_os = "linux")]
#[test]
fn frames_of_workers_have_their_properties() {
    check_corpus("worker_frames", worker_frames::check);
}
