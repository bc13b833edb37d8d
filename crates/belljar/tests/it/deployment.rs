//! The files of `deploy`, by their own tools and by the program whose options they use, and the limits and paths that
//! those of `packaging` share with the docs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use belljar_testing::install::run;

use crate::harness::{Belljar, names_in, python_with};
use crate::operator::Operator;

/// The number of threads of a session awake, as in docs/operations.md.
const THREADS_OF_SESSION: usize = 5;

/// The directories of the service, and the keys of systemd's unit for them.
const DIRECTORIES: [(&str, &str); 3] = [
    ("/var/cache/belljar", "CacheDirectory"),
    ("/var/lib/belljar", "StateDirectory"),
    ("/var/log/belljar", "LogsDirectory"),
];

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Returns the number of threads of all descendants of a process.
fn threads_of_descendants(process: u32) -> usize {
    let tasks = |process: &str| std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let mut threads = 0;
    for task in tasks(&process.to_string()).flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            threads += tasks(child).count() + threads_of_descendants(child.parse().unwrap());
        }
    }
    threads
}

#[test]
fn session_awake_has_five_threads() {
    let operator = Operator::start(&[]);
    let start = || operator.run(&operator.create(), "1");
    start();
    let server = operator.backend.child.id();
    let before = threads_of_descendants(server);
    for _ in 0..6 {
        start();
    }
    // A process for the next session may exist before, after, or both, and be about to start.
    let expected = 6 * THREADS_OF_SESSION..=7 * THREADS_OF_SESSION;
    let begin = Instant::now();
    loop {
        let added = threads_of_descendants(server).saturating_sub(before);
        if expected.contains(&added) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{added}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number after a key in a file.
fn number(name: &str, key: &str) -> usize {
    let text = read(name);
    let value = text.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap_or_else(|| panic!("{name}: {key}"));
    value.trim().parse().unwrap()
}

#[test]
fn limits_of_processes_have_room_for_all_sessions() {
    let help = Belljar::without_cache().args(["streamable-http", "--help"]).run().stdout;
    let (_, of_option) = help.split_once("--max-sessions <N>").unwrap();
    let (default, _) = of_option.split_once("[default: ").unwrap().1.split_once(']').unwrap();
    let sessions: usize = default.parse().unwrap();
    assert!(read("docs/operations.md").contains("a process with five threads"));
    // Code that runs once is in processes of the same kind, and the server has threads of its own.
    let wanted = (sessions + 100) * THREADS_OF_SESSION + 100;
    for (name, key) in [("packaging/compose.yaml", "pids_limit:"), ("packaging/systemd/belljar.service", "TasksMax=")] {
        assert!(number(name, key) >= wanted, "{name}: less than {wanted}");
    }
}

#[test]
fn directories_that_the_docs_name_are_writable_for_the_service() {
    let unit = read("packaging/systemd/belljar.service");
    let (compose, dockerfile) = (read("packaging/compose.yaml"), read("Dockerfile"));
    let made = dockerfile.split_once("install --directory").unwrap().1.split_once("\nCOPY").unwrap().0;
    for (directory, key) in DIRECTORIES {
        assert!(unit.contains(&format!("\n{key}=belljar\n")), "{key}");
        assert!(compose.contains(&format!(":{directory}\n")), "{directory} is not a volume");
        // Docker gives a new volume the owner of the directory in the image.
        assert!(made.split_whitespace().any(|word| word == directory), "{directory}: {made}");
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for name in names_in(&docs).iter().filter(|name| name.ends_with(".md")) {
        let text = read(&format!("docs/{name}"));
        for (position, _) in text.match_indices("/var/") {
            let known = DIRECTORIES.iter().any(|(directory, _)| text[position..].starts_with(directory));
            assert!(known, "{name}: {:?}", text[position..].lines().next());
        }
    }
}

#[test]
fn manifests_are_valid_and_name_known_options() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python_with("deployment", &["kubernetes-validate==1.37.0", "PyYAML==6.0.3"]));
    command.arg(root.join("tests/deployment/check.py")).arg(env!("CARGO_BIN_EXE_belljar"));
    run(command.arg(root.join("../../deploy")));
}
