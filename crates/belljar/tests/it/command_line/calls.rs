//! `belljar call`, with a server that is a script of the client's tests.

use std::path::Path;

use crate::harness::{Belljar, Run, names_in};

/// Returns a command line that starts a server.
fn server() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-client/tests/it/python/faulty_server.py");
    format!("python3 -u '{}' none", script.display())
}

fn call(arguments: &[&str]) -> Run {
    Belljar::with_cache(Path::new(env!("CARGO_TARGET_TMPDIR"))).args(["call"]).args(arguments).run()
}

#[test]
fn tools_are_listed() {
    let run = call(&[&server()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.starts_with("act") && run.stdout.contains("\nfine"), "{}", run.stdout);
}

#[test]
fn a_tool_is_called_and_its_result_printed() {
    let run = call(&[&server(), "fine"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "fine\n"));
    let run = call(&[&server(), "received", r#"{"n": [1, 2]}"#]);
    assert!(run.stdout.contains("\"name\": \"received\""), "{}", run.stdout);
    let run = call(&[&server(), "fine", "--raw"]);
    assert!(run.stdout.contains("\"content\""), "{}", run.stdout);
}

#[test]
fn images_become_files_that_replace_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let save = directory.path().join("out").display().to_string();
    for number in 1..=2 {
        let run = call(&[&server(), "picture", "--save", &save]);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        let name = format!("picture-{number}.png");
        assert!(run.stdout.starts_with("a picture\n") && run.stdout.contains(&name), "{}", run.stdout);
        assert!(std::fs::read(directory.path().join("out").join(name)).unwrap().starts_with(b"\x89PNG"));
    }
}

#[test]
fn images_are_saved_in_the_folder_whatever_the_server_calls_them() {
    let directory = tempfile::tempdir().unwrap();
    let save = directory.path().join("a/b/out");
    let run = call(&[&server(), "hostile/../pictures", "--save", save.to_str().unwrap()]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let names = names_in(&save);
    assert_eq!(names.len(), 19, "{names:?}");
    for name in &names {
        let is_plain =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let (stem, kind) = name.split_once('.').unwrap_or_else(|| panic!("{name}"));
        assert!(stem.starts_with("hostilepictures-") && is_plain(stem) && is_plain(kind), "{name}");
        assert!(std::fs::symlink_metadata(save.join(name)).unwrap().is_file(), "{name}");
    }
    // Nothing is next to the folder.
    for (parent, only) in [("", "a"), ("a", "b"), ("a/b", "out")] {
        assert_eq!(names_in(&directory.path().join(parent)), [only]);
    }
}

#[test]
fn a_server_of_a_configuration_file_is_named_after_a_hash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mcp.json");
    let script = server();
    let script = script.split('\'').nth(1).unwrap();
    let text = format!(r#"{{"mcpServers": {{"it": {{"command": "python3", "args": ["-u", "{script}", "none"]}}}}}}"#);
    std::fs::write(&path, text).unwrap();
    let run = call(&[&format!("{}#it", path.display()), "fine"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "fine\n"), "{}", run.stderr);
    let run = call(&[&format!("{}#other", path.display())]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("server `other` is not defined in"), "{}", run.stderr);
}

#[test]
fn call_errors_have_messages_and_statuses() {
    let run = call(&[&server(), "fails"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), ""));
    // The server's characters that control a terminal, and its digits, are not shown.
    assert_eq!(run.stderr, "[1e308] a step\nit [31mwent wrong, a\u{200d}b\n");
    let run = call(&["no-such-program-at-all"]);
    assert!(run.status == Some(2) && run.stderr.contains("check that the program is installed"), "{}", run.stderr);
    let run = call(&[&server(), "fine", "[1]"]);
    assert!(run.status == Some(2) && run.stderr.contains("are not a JSON object"), "{}", run.stderr);
    let run = call(&["http://127.0.0.1:1/mcp", "--start-timeout", "3"]);
    assert_eq!(run.status, Some(2), "{}", run.stderr);
}
