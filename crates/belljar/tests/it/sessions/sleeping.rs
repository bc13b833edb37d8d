//! Sessions on disk: they survive the end of a server, also a sudden one, and two servers share one directory.

use std::path::Path;
use std::time::{Duration, Instant};

use belljar_core::kernel::{KernelError, KernelSnapshot};
use belljar_sessions::{SessionError, SessionId, SessionOptions, Store};
use serde_json::{Value, json};

use super::life::{backend, sessions, value, wait};
use super::{open, run, serve};
use crate::harness::Belljar;
use crate::wire::Wire;

struct DataDir(tempfile::TempDir);

impl DataDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn serve(&self) -> Wire {
        serve(["--data-dir", self.path()])
    }

    fn belljar(&self, arguments: &[&str]) -> crate::harness::Run {
        Belljar::new().arg("sessions").args(arguments).args(["--data-dir", self.path()]).run()
    }
}

fn kill(mut wire: Wire) {
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
}

fn end(mut wire: Wire) {
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
}

#[test]
fn session_continues_in_the_next_server() {
    let data = DataDir::new();
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(
        &mut wire,
        &id,
        "import json\nx = {'a': [1, 2]}\nopen('f.txt', 'w').write('f')\n%pip install -q inflection\nimport inflection",
    );
    end(wire);
    let mut wire = data.serve();
    let answer = run(
        &mut wire,
        &id,
        "x['a'].append(3)\n(json.dumps(x), open('f.txt').read(), inflection.pluralize('day'), len(In))",
    );
    assert_eq!(answer["result"], "('{\"a\": [1, 2, 3]}', 'f', 'days', 4)", "{answer:#}");
}

#[test]
fn server_killed_between_cells_loses_no_state() {
    let data = DataDir::new();
    let mut wire = data.serve();
    let id = open(&mut wire);
    for n in 0..3 {
        run(&mut wire, &id, &format!("x = {n}\nopen('n.txt', 'w').write('{n}')"));
    }
    kill(wire);
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &id, "(x, open('n.txt').read())")["result"], "(2, '2')");
    let size = std::fs::metadata(data.0.path().join(&id).join("state")).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes");
}

#[test]
fn server_killed_during_a_cell_loses_only_that_cell() {
    let data = DataDir::new();
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    let code = "x = 2\nopen('half.txt', 'w').write('half')\nprint('half')\nwhile True: pass";
    wire.follow_output();
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": { "code": code, "session_id": id } }));
    wire.wait_for_output("half");
    kill(wire);
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &id, "import os; (x, os.path.exists('half.txt'))")["result"], "(1, False)");
}

#[test]
fn a_session_has_one_owner_at_a_time() {
    let data = DataDir::new();
    let (mut one, mut two) = (data.serve(), data.serve());
    let id = open(&mut one);
    run(&mut one, &id, "x = 1");
    let refused = run(&mut two, &id, "x = 2");
    assert_eq!(refused["success"], false);
    assert!(refused["error"].as_str().unwrap().contains("another server is using the session"), "{refused:#}");
    assert_eq!(run(&mut one, &id, "x")["result"], "1");
    kill(one);
    assert_eq!(run(&mut two, &id, "x")["result"], "1");
    end(two);
}

#[test]
fn idle_session_is_released_to_another_server() {
    let data = DataDir::new();
    let mut one = serve(["--data-dir", data.path(), "--sleep-after", "0.2"]);
    let mut two = data.serve();
    let id = open(&mut one);
    run(&mut one, &id, "x = 5");
    let begin = Instant::now();
    loop {
        let answer = run(&mut two, &id, "x");
        if answer["result"] == "5" {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "{answer:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
    run(&mut two, &id, "x = 6");
    end(two);
    assert_eq!(run(&mut one, &id, "x")["result"], "6");
}

/// Changes a state so that it names another image.
fn replace_image(store: &Store, id: &SessionId) {
    let mut stored = store.read(id).unwrap();
    stored.snapshot.metadata["image"] = "0".repeat(32).into();
    stored.snapshot.base = Some("0".repeat(32));
    store.write(id, None, &stored.snapshot, stored.last_used).unwrap();
}

#[test]
fn state_of_another_build_is_refused_but_files_are_readable() {
    wait(async {
        let directory = tempfile::tempdir().unwrap();
        let (first, _) = sessions(Some(Store::open(directory.path()).unwrap()), SessionOptions::default());
        let id = first.create().unwrap();
        value(&first, &id, "x = 1\nimport os; os.makedirs('d'); open('d/f.txt', 'w').write('kept')").await.unwrap();
        first.hibernate_all().await;
        replace_image(&Store::open(directory.path()).unwrap(), &id);
        let (second, _) = sessions(Some(Store::open(directory.path()).unwrap()), SessionOptions::default());
        let error = value(&second, &id, "x").await.unwrap_err();
        assert!(matches!(&error, SessionError::Unrestorable(reason) if reason.contains("another build")), "{error}");
        assert!(error.to_string().contains("Its files can be listed and read"), "{error}");
        let files = second.list(&id).await.unwrap();
        assert_eq!((files.len(), files[0].path.as_str()), (1, "d/f.txt"));
        let uri = format!("kernel://{}/d/f.txt", id.as_str());
        let read = second.read(belljar_sessions::FileAddress::parse(&uri).unwrap()).await.unwrap();
        assert_eq!(read, b"kept");
        second.restart(&id).await.unwrap();
        assert_eq!(value(&second, &id, "(open('d/f.txt').read(), 'x' in globals())").await.unwrap(), "('kept', False)");
    });
}

#[test]
fn a_damaged_state_is_an_error_and_other_sessions_work() {
    wait(async {
        let directory = tempfile::tempdir().unwrap();
        let (first, _) = sessions(Some(Store::open(directory.path()).unwrap()), SessionOptions::default());
        let (one, two) = (first.create().unwrap(), first.create().unwrap());
        for id in [&one, &two] {
            value(&first, id, "x = 1").await.unwrap();
        }
        first.hibernate_all().await;
        let path = directory.path().join(one.as_str()).join("state");
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let (second, _) = sessions(Some(Store::open(directory.path()).unwrap()), SessionOptions::default());
        let error = value(&second, &one, "x").await.unwrap_err().to_string();
        assert!(error.contains("does not match its checksum"), "{error}");
        assert_eq!(value(&second, &two, "x").await.unwrap(), "1");
    });
}

#[test]
fn forged_state_is_refused_without_harm() {
    wait(async {
        let directory = tempfile::tempdir().unwrap();
        let (first, _) = sessions(Some(Store::open(directory.path()).unwrap()), SessionOptions::default());
        let id = first.create().unwrap();
        value(&first, &id, "x = 1").await.unwrap();
        first.hibernate_all().await;
        let store = Store::open(directory.path()).unwrap();
        let whole = store.read(&id).unwrap().snapshot;
        let backend = backend();
        let (mut refused, mut woken) = (0, 0);
        // Bytes of the header and the description, then of page numbers and page contents.
        for at in (0..200).chain((200..whole.data.len()).step_by(whole.data.len() / 150)) {
            let mut lie = whole.clone();
            lie.data[at] ^= 0x55;
            let result = belljar_python::on_guest_thread(|| {
                backend.restore(&lie, &|| None, None, &belljar_core::NoProgress).map(drop)
            })
            .unwrap();
            match result {
                Ok(()) => woken += 1,
                Err(KernelError::IncompatibleSnapshot(_)) => refused += 1,
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
        assert!(refused > 20 && woken > 0, "{refused} refused, {woken} woken");
        for length in [0, 10, 24, 100, whole.data.len() - 1] {
            let cut = KernelSnapshot { data: whole.data[..length].to_vec(), ..whole.clone() };
            let result = belljar_python::on_guest_thread(|| {
                backend.restore(&cut, &|| None, None, &belljar_core::NoProgress).map(drop)
            })
            .unwrap();
            assert!(matches!(result, Err(KernelError::IncompatibleSnapshot(_))), "{length} bytes");
        }
    });
}

#[test]
fn sessions_are_listed_moved_and_removed_on_the_command_line() {
    let (data, other) = (DataDir::new(), DataDir::new());
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 7\nprint('out')\nx * 6");
    run(&mut wire, &id, "1/0");
    end(wire);
    let listed = data.belljar(&["list"]);
    assert!(listed.status == Some(0) && listed.stdout.contains(&id), "{listed:?}");
    let file = data.0.path().join("moved.belljar");
    let exported = data.belljar(&["export", &id, "-o", file.to_str().unwrap()]);
    assert_eq!(exported.status, Some(0), "{exported:?}");
    let imported = other.belljar(&["import", file.to_str().unwrap()]);
    assert_eq!(imported.status, Some(0), "{imported:?}");
    let new = imported.stdout.trim().to_owned();
    let mut wire = other.serve();
    assert_eq!(run(&mut wire, &new, "x")["result"], "7");
    end(wire);
    let notebook = data.belljar(&["export", &id, "--notebook"]);
    let notebook: Value = serde_json::from_str(&notebook.stdout).unwrap_or_else(|_| panic!("{notebook:?}"));
    let cells = notebook["cells"].as_array().unwrap();
    assert_eq!(cells[1]["outputs"][0]["text"], json!(["out\n"]));
    assert_eq!(cells[1]["outputs"][1]["data"]["text/plain"], json!(["42"]));
    assert_eq!(cells[2]["outputs"][0]["ename"], "ZeroDivisionError");
    assert_eq!(notebook["nbformat"], 4);
    assert_eq!(data.belljar(&["rm", &id]).status, Some(0));
    assert!(!Path::new(data.path()).join(&id).exists());
    let gone = data.belljar(&["rm", &id]);
    assert!(gone.status == Some(2) && gone.stderr.contains("does not exist"), "{gone:?}");
    let garbage = data.0.path().join("garbage");
    std::fs::write(&garbage, "garbage").unwrap();
    let refused = data.belljar(&["import", garbage.to_str().unwrap()]);
    assert!(refused.status == Some(2) && refused.stderr.contains("is not an exported session"), "{refused:?}");
}

#[test]
fn imported_sessions_draw_other_random_numbers() {
    let (data, other) = (DataDir::new(), DataDir::new());
    let draw = "import random, tempfile\n(random.random(), tempfile.mktemp())";
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, draw);
    end(wire);
    let file = data.0.path().join("moved.belljar");
    let exported = data.belljar(&["export", &id, "-o", file.to_str().unwrap()]);
    assert_eq!(exported.status, Some(0), "{exported:?}");
    let copies = [(); 2].map(|()| other.belljar(&["import", file.to_str().unwrap()]).stdout.trim().to_owned());
    let mut wire = other.serve();
    let mut drawn: Vec<Value> = copies.iter().map(|copy| run(&mut wire, copy, draw)["result"].clone()).collect();
    // Only the first call after the import seeds the generators.
    run(&mut wire, &copies[0], "random.seed(5)");
    end(wire);
    let mut wire = other.serve();
    assert_eq!(run(&mut wire, &copies[0], "random.random()")["result"], "0.6229016948897019");
    end(wire);
    let mut wire = data.serve();
    drawn.push(run(&mut wire, &id, draw)["result"].clone());
    assert!(drawn.iter().all(Value::is_string), "{drawn:?}");
    assert!(drawn[0] != drawn[1] && drawn[0] != drawn[2] && drawn[1] != drawn[2], "{drawn:?}");
}

#[test]
fn session_continues_with_another_cache() {
    let (data, other) = (DataDir::new(), DataDir::new());
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "import json\nx = {'a': [1, 2]}\nclass C: pass\nc = C()\nopen('f.txt', 'w').write('f')");
    end(wire);
    let file = data.0.path().join("moved.belljar");
    let exported = data.belljar(&["export", &id, "-o", file.to_str().unwrap()]);
    assert_eq!(exported.status, Some(0), "{exported:?}");
    // As on another machine: the images are built again, and the packages installed again.
    let cache = tempfile::tempdir().unwrap();
    let cache_path = cache.path().join("of-another-machine");
    crate::packages::copy_parts(&cache_path);
    let imported = other.belljar(&["import", file.to_str().unwrap()]);
    let moved = imported.stdout.trim();
    let command =
        Belljar::with_cache(&cache_path).args(["stdio", "--toolset", "interpreter", "--data-dir", other.path()]);
    let mut command = command.into_command();
    command.stderr(std::process::Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let answer = run(&mut wire, moved, "x['a'].append(3)\n(json.dumps(x), type(c).__name__, open('f.txt').read())");
    assert_eq!(answer["result"], "('{\"a\": [1, 2, 3]}', 'C', 'f')", "{answer:#}");
}

#[test]
fn ids_of_earlier_versions_that_begin_with_a_hyphen_are_operands() {
    let data = DataDir::new();
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 7");
    end(wire);
    let (hyphen, hyphens) = ("-lB3dEfGhIjKlMnO", "--notebookGhIjKl");
    let store = Store::open(data.0.path()).unwrap();
    let (state, cells) = store.export(&SessionId::parse(&id).unwrap()).unwrap();
    for id in [hyphen, hyphens] {
        store.import(&SessionId::parse(id).unwrap(), &state, &cells).unwrap();
    }
    let exported = data.belljar(&["export", hyphen, "--notebook"]);
    assert!(exported.status == Some(0) && exported.stdout.contains("x = 7"), "{exported:?}");
    let removed = data.belljar(&["rm", hyphen, &id, hyphens]);
    assert_eq!(removed.status, Some(0), "{removed:?}");
    let listed = data.belljar(&["list"]);
    assert_eq!((listed.status, listed.stdout.as_str()), (Some(0), ""), "{listed:?}");
    let unknown = data.belljar(&["rm", hyphen]);
    assert!(unknown.stderr.contains(&format!("session {hyphen} does not exist")), "{unknown:?}");
}

#[test]
fn copied_directory_has_the_sessions() {
    let (data, folder) = (DataDir::new(), tempfile::tempdir().unwrap());
    let mut wire = data.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = [1]\nopen('f.txt', 'w').write('f')");
    end(wire);
    let copy = folder.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(data.path()).arg(&copy).status().unwrap();
    assert!(copied.success());
    // The original is used further, which the copy must not notice.
    let mut wire = data.serve();
    assert_eq!(run(&mut wire, &id, "x.append(2)\nx")["result"], "[1, 2]");
    end(wire);
    let mut wire = serve(["--data-dir", copy.to_str().unwrap()]);
    assert_eq!(run(&mut wire, &id, "x.append(3)\n(x, open('f.txt').read())")["result"], "([1, 3], 'f')");
    end(wire);
}
