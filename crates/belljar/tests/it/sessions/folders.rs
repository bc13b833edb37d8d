//! `--files` and `--mount`: directories of this machine that users and sessions share.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Session, fields, joined, open, run, serve};
use crate::harness::{Belljar, names_in};
use crate::serve::http::Listening;
use crate::wire::{Wire, text};

/// The time within which a session must sleep or expire.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A directory for `--files`, next to a file that nothing may reach, and another for `--data-dir`.
struct Directories {
    outer: tempfile::TempDir,
    /// The isolation of interpreters.
    isolation: &'static str,
}

impl Directories {
    fn new(isolation: &'static str) -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("files")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        Self { outer, isolation }
    }

    fn at(&self, name: &str) -> String {
        self.outer.path().join(name).to_str().unwrap().to_owned()
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.outer.path().join("files").join(id)
    }

    fn serve(&self, more: &[&str]) -> Wire {
        self.serve_without(&[&["--files", &self.at("files")], more].concat())
    }

    /// Starts a server that knows nothing of the directory.
    fn serve_without(&self, options: &[&str]) -> Wire {
        serve(["--isolation", self.isolation].into_iter().chain(options.iter().copied()))
    }

    fn session(&self, more: &[&str]) -> Session {
        let mut wire = self.serve(more);
        let id = open(&mut wire);
        Session { wire, id }
    }
}

in_both_isolations! {
    user_and_code_share_the_folder_of_a_session
    sessions_have_separate_folders
    sleeping_session_wakes_with_the_folder_as_it_is_then
    saved_session_finds_its_folder_in_the_next_server
    files_of_a_state_move_into_the_new_folder
    fork_gets_a_copy_of_the_folder
    files_stay_when_a_session_ends
    files_stay_when_a_session_expires
    #[cfg(unix)]
    links_do_not_lead_out_of_a_folder
    #[cfg(unix)]
    files_that_are_replaced_while_they_are_read_lead_nowhere_else
    files_in_a_folder_are_readable_without_a_usable_state
    mounts_are_in_calls_and_sessions
}

fn end(mut wire: Wire) {
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// Returns the names in the answer of `list_session_files`, or in `files` of a cell's answer.
fn names(answer: &Value) -> Vec<&str> {
    answer["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect()
}

fn user_and_code_share_the_folder_of_a_session(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let mut session = directories.session(&[]);
    let folder = directories.folder(&session.id);
    let answer = session.run("import os; os.makedirs('sub'); open('sub/code.txt', 'w').write('code'); os.getcwd()");
    assert_eq!((names(&answer), &answer["result"]), (vec!["sub/code.txt"], &json!("'/home'")), "{answer:#}");
    assert_eq!(read(folder.join("sub/code.txt")), "code");
    // Code sees the user's files, which are not changes of the cell.
    fs::write(folder.join("user.csv"), "a,b\n1,2\n").unwrap();
    fs::write(folder.join("users_module.py"), "answer = 42").unwrap();
    fs::write(folder.join("sub/code.txt"), "changed by the user").unwrap();
    let answer =
        session.run("import users_module; users_module.answer, open('user.csv').read(), open('sub/code.txt').read()");
    assert_eq!(answer["result"], "(42, 'a,b\\n1,2\\n', 'changed by the user')", "{answer:#}");
    assert_eq!(names(&answer).iter().filter(|name| !name.contains("__pycache__")).count(), 0, "{answer:#}");
    // Listed, read and uploaded files are those of the folder.
    let listed = session.tool("list_session_files", json!({}));
    assert!(["sub/code.txt", "user.csv"].iter().all(|name| names(&listed).contains(name)), "{listed:#}");
    let uri = format!("kernel://{}/user.csv?offset=4&length=3", session.id);
    let resource = session.wire.ask("resources/read", json!({ "uri": uri }));
    assert_eq!(resource["result"]["contents"][0]["text"], "1,2", "{resource:#}");
    session.tool("upload_file", json!({ "name": "up.txt", "content": "uploaded" }));
    assert_eq!(read(folder.join("up.txt")), "uploaded");
    // A restart, and an interpreter that ends, keep the folder.
    session.tool("restart_session", json!({}));
    assert_eq!(session.value("open('up.txt').read()"), "'uploaded'");
    session.run("import os; os._exit(3)");
    assert_eq!(session.value("open('up.txt').read()"), "'uploaded'");
    let long = session.run("print('x' * 100_000)");
    assert!(names(&long).iter().any(|name| name.starts_with("output_") && folder.join(name).exists()), "{long:#}");
}

fn sessions_have_separate_folders(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let mut wire = directories.serve(&[]);
    let [one, two] = [(); 2].map(|()| open(&mut wire));
    run(&mut wire, &one, "open('f', 'w').write('one')");
    let seen = run(&mut wire, &two, "import os; os.listdir('.'), os.path.exists('../f'), os.listdir('/home')");
    assert_eq!(seen["result"], "([], False, [])");
    for path in [format!("/home/../{one}/f"), format!("../{one}/f"), directories.at("secret")] {
        let seen = run(&mut wire, &two, &format!("open({path:?}).read()"));
        assert!(seen["error"].as_str().unwrap().contains("FileNotFoundError"), "{path}: {seen:#}");
    }
}

fn sleeping_session_wakes_with_the_folder_as_it_is_then(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let files = directories.at("files");
    let options = ["--toolset", "interpreter", "--sleep-after", "0.3", "--files", &files, "--isolation", isolation];
    let server = Listening::start("streamable-http-stateless", options);
    let code = "x = 5; import os; os.chdir('/home'); open('f.txt', 'w').write('before')";
    let opened = fields(&server.tool("execute_code", &json!({ "code": code })));
    let id = opened["session_info"]["session_id"].as_str().unwrap();
    let folder = directories.folder(id);
    server.wait_for_sleep(1);
    fs::write(folder.join("f.txt"), "written while it slept").unwrap();
    fs::write(folder.join("new.txt"), "new").unwrap();
    let code = "x, open('f.txt').read(), open('new.txt').read()";
    let answer = fields(&server.tool("execute_code", &json!({ "session_id": id, "code": code })));
    assert_eq!(answer["result"], "(5, 'written while it slept', 'new')", "{answer:#}");
    assert_eq!(names(&answer), [""; 0]);
}

fn saved_session_finds_its_folder_in_the_next_server(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let data = ["--data-dir", &directories.at("data")];
    let mut session = directories.session(&data);
    // The bytes cannot be compressed, and little of them stays in memory.
    session.run(
        "import os\nx = 1\nwith open('f.txt', 'wb') as file:\n    for _ in range(3000): file.write(os.urandom(1000))",
    );
    let Session { wire, id } = session;
    end(wire);
    let state = fs::metadata(Path::new(&directories.at("data")).join(&id).join("state")).unwrap().len();
    assert!(state < 1 << 20, "the state contains the files: {state} bytes");
    let mut wire = directories.serve(&data);
    assert_eq!(run(&mut wire, &id, "x, os.path.getsize('f.txt')")["result"], "(1, 3000000)");
    end(wire);
    // A server without folders does not see the files, and the state is still intact.
    let mut wire = directories.serve_without(&data);
    assert_eq!(run(&mut wire, &id, "import os; x, os.listdir('.')")["result"], "(1, [])");
}

fn files_of_a_state_move_into_the_new_folder(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let data = ["--data-dir", &directories.at("data")];
    let mut wire = directories.serve_without(&data);
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1; import os; os.mkdir('d'); open('d/f.txt', 'w').write('in the state')");
    end(wire);
    let mut wire = directories.serve(&data);
    assert_eq!(run(&mut wire, &id, "x, open('d/f.txt').read()")["result"], "(1, 'in the state')");
    assert_eq!(read(directories.folder(&id).join("d/f.txt")), "in the state");
    // Once: later the folder decides.
    fs::remove_file(directories.folder(&id).join("d/f.txt")).unwrap();
    end(wire);
    let mut wire = directories.serve(&data);
    assert_eq!(run(&mut wire, &id, "os.listdir('d')")["result"], "[]");
}

fn fork_gets_a_copy_of_the_folder(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let mut session = directories.session(&[]);
    session.run("x = 1; import os; os.mkdir('d'); open('d/f.txt', 'w').write('common')");
    fs::write(directories.folder(&session.id).join("user.txt"), "user").unwrap();
    let forked = session.tool("fork_session", json!({}));
    let fork = forked["session_id"].as_str().unwrap_or_else(|| panic!("{forked:#}")).to_owned();
    let seen = run(&mut session.wire, &fork, "x, open('d/f.txt').read(), open('user.txt').read()");
    assert_eq!(seen["result"], "(1, 'common', 'user')", "{seen:#}");
    run(&mut session.wire, &fork, "open('d/f.txt', 'w').write('of the fork')");
    assert_eq!(session.value("open('d/f.txt').read()"), "'common'");
    assert_eq!(read(directories.folder(&fork).join("d/f.txt")), "of the fork");
    // A folder beyond the limit is not copied, and nothing is left of the copy.
    let limited = Directories::new(isolation);
    let mut session = limited.session(&["--session-disk", "1MB"]);
    session.run("open('f', 'wb').write(bytes(2_000_000))");
    let refused = session.tool("fork_session", json!({}));
    assert!(refused.to_string().contains("is not copied"), "{refused:#}");
    assert_eq!(names_in(&limited.folder("")), [session.id.as_str()]);
}

fn files_stay_when_a_session_ends(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let mut session = directories.session(&[]);
    session.run("open('f.txt', 'w').write('kept')");
    let cleared = session.wire.tool("clear_session", json!({ "session_id": session.id }));
    assert!(cleared.to_string().contains("its files stay in its folder"), "{cleared:#}");
    assert_eq!(read(directories.folder(&session.id).join("f.txt")), "kept");
    // A folder without files is removed.
    let empty = open(&mut session.wire);
    assert!(directories.folder(&empty).is_dir());
    session.wire.tool("clear_session", json!({ "session_id": empty }));
    assert!(!directories.folder(&empty).exists());
    let left = open(&mut session.wire);
    end(session.wire);
    assert!(!directories.folder(&left).exists());
}

fn files_stay_when_a_session_expires(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let mut session = directories.session(&["--session-timeout", "8"]);
    session.run("open('f.txt', 'w').write('kept')");
    let empty = open(&mut session.wire);
    let begin = Instant::now();
    while directories.folder(&empty).exists() {
        assert!(begin.elapsed() < TIMEOUT, "the session does not expire");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(session.run("1")["error"].as_str().unwrap().contains("SessionExpiredError"));
    assert_eq!(read(directories.folder(&session.id).join("f.txt")), "kept");
}

#[cfg(unix)]
fn links_do_not_lead_out_of_a_folder(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let mut session = directories.session(&[]);
    let folder = directories.folder(&session.id);
    session.run("pass");
    symlink("../../secret", folder.join("relative")).unwrap();
    symlink(directories.at("secret"), folder.join("absolute")).unwrap();
    symlink("/", folder.join("root")).unwrap();
    symlink("..", folder.join("up")).unwrap();
    for path in ["relative", "absolute", "root/etc/passwd", "up/../secret", "root"] {
        let error = session.error(&format!("open({path:?}).read()"));
        assert!(error.contains("Error"), "{path}: {error}");
        let error = session.error(&format!("open({path:?}, 'w').write('x')"));
        assert!(error.contains("Error"), "{path}: {error}");
        let uri = format!("kernel://{}/{path}", session.id);
        let refused = session.wire.ask("resources/read", json!({ "uri": uri }));
        assert!(refused["error"].is_object(), "{path}: {refused:#}");
        let refused =
            session.wire.tool("upload_file", json!({ "session_id": session.id, "name": path, "content": "x" }));
        assert!(!refused.to_string().contains("\"size\""), "{path}: {refused:#}");
    }
    let listed = session.tool("list_session_files", json!({}));
    assert_eq!(names(&listed), [""; 0], "{listed:#}");
    assert_eq!(read(directories.at("secret")), "secret");
    // A link in place of a session's folder is not followed when the session starts.
    let data = ["--data-dir", &directories.at("data")];
    let session = directories.session(&data);
    let Session { wire, id } = session;
    end(wire);
    let _ = fs::remove_dir(directories.folder(&id));
    fs::create_dir(directories.at("elsewhere")).unwrap();
    symlink(directories.at("elsewhere"), directories.folder(&id)).unwrap();
    let mut wire = directories.serve(&data);
    let refused = run(&mut wire, &id, "open('f', 'w')");
    assert!(refused["error"].as_str().unwrap().contains("failed to open the session's folder"), "{refused:#}");
    assert_eq!(names_in(Path::new(&directories.at("elsewhere"))).len(), 0);
}

#[cfg(unix)]
fn files_that_are_replaced_while_they_are_read_lead_nowhere_else(isolation: &'static str) {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Ends a thread when dropped, also by a panic.
    struct EndOnDrop<'a>(&'a AtomicBool);

    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const HIDDEN: &str = "the content of a file outside";
    let directories = Directories::new(isolation);
    let mut session = directories.session(&[]);
    session.run("pass");
    let changing = directories.folder(&session.id).join("changing");
    fs::write(directories.at("hidden"), HIDDEN).unwrap();
    // A file, a link, a directory with a link, and a FIFO take turns.
    let prepared = ["file", "link", "directory", "fifo"].map(|name| PathBuf::from(directories.at(name)));
    fs::write(&prepared[0], "harmless").unwrap();
    symlink(directories.at("hidden"), &prepared[1]).unwrap();
    fs::create_dir(&prepared[2]).unwrap();
    symlink(directories.at("hidden"), prepared[2].join("within")).unwrap();
    assert!(Command::new("mkfifo").arg(&prepared[3]).status().unwrap().success());
    let is_over = AtomicBool::new(false);
    let mut harmless = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for path in prepared.iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                fs::rename(path, &changing).unwrap();
                fs::rename(&changing, path).unwrap();
            }
        });
        let _end = EndOnDrop(&is_over);
        for round in 0..1000 {
            let path = if round % 2 == 0 { "changing" } else { "changing/within" };
            let uri = format!("kernel://{}/{path}", session.id);
            let answer = session.wire.ask("resources/read", json!({ "uri": uri }));
            assert!(!answer.to_string().contains(HIDDEN), "{answer:#}");
            harmless += usize::from(answer["result"]["contents"][0]["text"] == "harmless");
            let listed = session.tool("list_session_files", json!({}));
            let sizes: Vec<_> =
                listed["files"].as_array().unwrap().iter().map(|file| file["size"].as_u64().unwrap()).collect();
            assert!(!sizes.contains(&(HIDDEN.len() as u64)), "{listed:#}");
            if round % 50 == 0 {
                let code = "for path in 'changing', 'changing/within':\n    try: print(open(path).read())\n\
                            \x20   except OSError: pass";
                let seen = session.run(code);
                assert!(seen["success"] == true && !seen.to_string().contains(HIDDEN), "{seen:#}");
            }
        }
    });
    assert!(harmless > 0, "the file was never read");
}

fn files_in_a_folder_are_readable_without_a_usable_state(isolation: &'static str) {
    let directories = Directories::new(isolation);
    let data = ["--data-dir", &directories.at("data")];
    let mut session = directories.session(&data);
    session.run("x = 1; open('f.txt', 'w').write('kept')");
    let Session { wire, id } = session;
    end(wire);
    let store = belljar_sessions::Store::open(Path::new(&directories.at("data"))).unwrap();
    let parsed = belljar_sessions::SessionId::parse(&id).unwrap();
    let mut stored = store.read(&parsed).unwrap();
    stored.snapshot.metadata["image"] = "0".repeat(32).into();
    store.write(&parsed, None, &stored.snapshot, stored.last_used).unwrap();
    let mut session = Session { wire: directories.serve(&data), id };
    assert!(session.error("x").contains("cannot be restored"));
    assert_eq!(names(&session.tool("list_session_files", json!({}))), ["f.txt"]);
    let uri = format!("kernel://{}/f.txt", session.id);
    assert_eq!(session.wire.ask("resources/read", json!({ "uri": uri }))["result"]["contents"][0]["text"], "kept");
    session.tool("restart_session", json!({}));
    assert_eq!(session.value("(open('f.txt').read(), 'x' in globals())"), "('kept', False)");
}

fn mounts_are_in_calls_and_sessions(isolation: &'static str) {
    let directories = Directories::new(isolation);
    fs::write(directories.folder("input.txt"), "input").unwrap();
    fs::create_dir(directories.at("out")).unwrap();
    let mounts = [format!("{}:/data", directories.at("files")), format!("{}:/out:rw", directories.at("out"))];
    let usual = ["--toolset", "all", "--no-install", "--sleep-after", "0.3", "--isolation", isolation];
    let options = usual.into_iter().chain(mounts.iter().flat_map(|mount| ["--mount", mount.as_str()]));
    let server = Listening::start("streamable-http-stateless", options);
    let tools = server.ask("tools/list", &json!({}));
    for tool in tools["tools"].as_array().unwrap() {
        let is_described = tool["description"].as_str().unwrap().contains("/data (read-only), /out (writable)");
        assert_eq!(
            is_described,
            ["run_python_code", "execute_code"].contains(&tool["name"].as_str().unwrap()),
            "{tool:#}"
        );
    }
    let call = |code: &str| text(&server.tool("run_python_code", &json!({ "python_code": code })));
    let seen = call("open('/out/of_call', 'w').write('1'); open('/data/input.txt').read()");
    assert!(seen.contains("input"), "{seen}");
    assert_eq!(read(Path::new(&directories.at("out")).join("of_call")), "1");
    let refused = call("open('/data/new', 'w')");
    assert!(refused.contains("Read-only file system"), "{refused}");
    let opened = fields(&server.tool("execute_code", &json!({ "code": "pass" })));
    let id = &opened["session_info"]["session_id"];
    let in_session = |id: &Value| {
        let code = "open('/out/of_session', 'a').write('1'); open('/data/input.txt').read()";
        fields(&server.tool("execute_code", &json!({ "session_id": id, "code": code })))
    };
    assert_eq!(in_session(id)["result"], "'input'");
    let fork = fields(&server.tool("fork_session", &json!({ "session_id": id })));
    assert_eq!(in_session(&fork["session_id"])["result"], "'input'");
    server.wait_for_sleep(2);
    assert_eq!(in_session(id)["result"], "'input'");
    server.tool("restart_session", &json!({ "session_id": id }));
    let answer = in_session(id);
    assert_eq!(answer["result"], "'input'");
    assert_eq!(read(Path::new(&directories.at("out")).join("of_session")), "1111");
    assert_eq!(
        (names(&answer), joined(&answer["output"])),
        (vec![], String::new()),
        "mounts are not the session's files"
    );
}

#[test]
fn directories_that_cannot_be_used_are_refused_at_the_start() {
    let directories = Directories::new("thread");
    let (files, file, missing) = (directories.at("files"), directories.at("secret"), directories.at("missing"));
    let mount = |guest: &str| format!("{files}:{guest}");
    for (options, wanted) in [
        (vec!["--files".to_owned(), missing.clone()], "missing does not exist"),
        (vec!["--files".into(), file.clone()], "secret is not a directory"),
        (vec!["--files".into(), files.clone(), "--data-dir".into(), files.clone()], "is that of --data-dir"),
        (vec!["--mount".into(), format!("{missing}:/data")], "missing does not exist"),
        (vec!["--mount".into(), format!("{file}:/data")], "secret is not a directory"),
        (vec!["--mount".into(), mount("/home")], "/home is the working directory"),
        (vec!["--mount".into(), mount("/home/data")], "/home is the working directory"),
        (vec!["--mount".into(), mount("/dev")], "/dev is reserved"),
        (vec!["--mount".into(), mount("/")], "/ is reserved"),
        (vec!["--mount".into(), mount("/a"), "--mount".into(), mount("/a/b")], "another directory is mounted at /a"),
        (vec!["--mount".into(), "x".into()], "write HOST:GUEST"),
    ] {
        let run = Belljar::new().args(["stdio", "--toolset", "interpreter"]).args(&options).run();
        assert!(run.status == Some(2) && run.stderr.contains(wanted), "{options:?}: {run:?}");
        assert!(run.stderr.contains("hint: ") || wanted.contains("HOST:GUEST") || options[0] == "--mount", "{run:?}");
    }
}

#[test]
fn configurations_contain_absolute_paths() {
    let directories = Directories::new("thread");
    let options = ["--files", "files", "--mount", "./files:/data:rw", "--data-dir=data"];
    let run =
        Belljar::without_cache().args(["config", "cursor"]).args(options).directory(directories.outer.path()).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    let value: Value = serde_json::from_str(&run.stdout).unwrap();
    let here = directories.outer.path().canonicalize().unwrap();
    let here = here.to_str().unwrap();
    let wanted = [
        "--files".to_owned(),
        format!("{here}/files"),
        "--mount".into(),
        format!("{here}/files:/data:rw"),
        format!("--data-dir={here}/data"),
    ];
    let arguments = value["mcpServers"]["belljar"]["args"].as_array().unwrap();
    assert_eq!(arguments[arguments.len() - wanted.len()..], wanted.map(Value::from), "{value:#}");
}
