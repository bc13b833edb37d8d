//! The data directory with files that another program put there: they are refused with an error, have no effect on
//! other files, and do not disturb other sessions.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{open, run, serve};
use crate::harness::Belljar;
use crate::wire::Wire;

/// The time in which an error must arrive, on a busy machine too.
const TIMEOUT: Duration = Duration::from_secs(180);

struct DataDirectory(tempfile::TempDir);

impl DataDirectory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn serve(&self) -> Wire {
        serve(["--data-dir", self.root().to_str().unwrap()])
    }

    fn path(&self, id: &str, name: &str) -> PathBuf {
        self.root().join(id).join(name)
    }

    /// Creates a session in which `x` has this value, and ends its server.
    fn session(&self, x: u32) -> String {
        let mut wire = self.serve();
        let id = open(&mut wire);
        run(&mut wire, &id, &format!("x = {x}"));
        end(wire);
        id
    }
}

fn end(mut wire: Wire) {
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
}

/// Returns the error of a call, which must arrive soon.
fn error(wire: &mut Wire, id: &str) -> String {
    let begin = Instant::now();
    let answer: Value = run(wire, id, "x");
    assert!(begin.elapsed() < TIMEOUT, "{answer:#}");
    answer["error"].as_str().unwrap_or_else(|| panic!("no error: {answer:#}")).to_owned()
}

#[test]
fn link_in_place_of_a_new_state_is_replaced_and_its_target_unharmed() {
    let data = DataDirectory::new();
    let victim = data.0.path().join("victim");
    std::fs::write(&victim, "unharmed").unwrap();
    let id = data.session(1);
    symlink(&victim, data.path(&id, "state.new")).unwrap();
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &id, "x += 1; x")["result"], "2");
    end(wire);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "unharmed");
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &id, "x")["result"], "2");
}

#[test]
fn link_in_place_of_the_cells_is_an_error_and_its_target_unharmed() {
    let data = DataDirectory::new();
    let victim = data.0.path().join("victim");
    std::fs::write(&victim, "unharmed").unwrap();
    let id = data.session(1);
    std::fs::remove_file(data.path(&id, "cells.jsonl")).unwrap();
    symlink(&victim, data.path(&id, "cells.jsonl")).unwrap();
    let mut wire = data.serve();
    let refused = error(&mut wire, &id);
    assert!(refused.contains("cells.jsonl in the data directory is a symbolic link, which is not used"), "{refused}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "unharmed");
    end(wire);
    let root = data.root();
    let exported = Belljar::new().args(["sessions", "export", "--notebook", &id, "--data-dir"]).arg(root).run();
    assert!(exported.status == Some(2) && exported.stderr.contains("is a symbolic link"), "{exported:?}");
}

#[test]
fn fifo_in_place_of_a_state_is_an_error_and_other_sessions_work() {
    let data = DataDirectory::new();
    let (one, two) = (data.session(1), data.session(2));
    let mut wire = data.serve();
    for name in ["state", "lease"] {
        std::fs::remove_file(data.path(&one, name)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(data.path(&one, name)).status().unwrap().success());
    }
    let refused = error(&mut wire, &one);
    assert!(refused.contains("is a FIFO, which is not used"), "{refused}");
    assert_eq!(run(&mut wire, &two, "x")["result"], "2");
    end(wire);
    // The next server reads all headers when it starts.
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &two, "x")["result"], "2");
    let refused = error(&mut wire, &one);
    assert!(refused.contains("is a FIFO, which is not used"), "{refused}");
    let listed = Belljar::new().args(["sessions", "list", "--data-dir"]).arg(data.root()).run();
    assert!(listed.status == Some(0) && listed.stdout.contains("is a FIFO"), "{listed:?}");
}

#[test]
fn swapped_states_are_refused() {
    let data = DataDirectory::new();
    let (one, two) = (data.session(1), data.session(2));
    let (first, second) = (data.path(&one, "state"), data.path(&two, "state"));
    let kept = data.0.path().join("kept");
    std::fs::rename(&first, &kept).unwrap();
    std::fs::rename(&second, &first).unwrap();
    std::fs::rename(&kept, &second).unwrap();
    let mut wire = data.serve();
    for id in [&one, &two] {
        let refused = error(&mut wire, id);
        assert!(refused.contains("belongs to another session"), "{refused}");
    }
    end(wire);
    std::fs::rename(&first, &kept).unwrap();
    std::fs::rename(&second, &first).unwrap();
    std::fs::rename(&kept, &second).unwrap();
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &one, "x")["result"], "1");
    assert_eq!(run(&mut wire, &two, "x")["result"], "2");
}

#[test]
fn files_are_accessible_to_the_servers_user_only() {
    let data = DataDirectory::new();
    let id = data.session(1);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data.root()), mode(&data.root().join(&id))), (0o700, 0o700));
    for name in crate::harness::names_in(&data.root().join(&id)) {
        assert_eq!(mode(&data.path(&id, &name)), 0o600, "{name}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn server_does_not_start_if_it_cannot_write_to_the_directory() {
    // Root can write everywhere but to a file system that has no files of users.
    let run = Belljar::new().args(["stdio", "--toolset", "interpreter", "--data-dir", "/proc"]).run();
    assert!(run.status == Some(2) && run.stderr.starts_with("belljar: --data-dir: failed to "), "{run:?}");
    assert!(run.stderr.contains(" /proc: "), "{run:?}");
}
