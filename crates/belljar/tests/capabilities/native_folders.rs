//! `--files` and `--mount` of servers whose code runs in native kernels: a folder of this machine for each session, and
//! directories that all code can use.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use belljar_testing::shared_folder::{SYSTEM_PYTHON, shared_folder};
use serde_json::{Value, json};

use super::native_calls::ENVIRONMENTS;
use crate::harness::{Belljar, names_in};
use crate::wire::{Wire, text};

belljar_testing::trials! {
    user_and_native_code_share_the_folder_of_a_session: [NativeSandbox],
    native_code_does_not_leave_its_folder: [NativeSandbox],
    files_that_native_code_replaces_lead_nowhere_else: [NativeSandbox],
    native_code_uses_mounts_as_they_allow: [NativeSandbox],
    weak_kernels_use_folders_at_their_own_paths: [WeakSandbox, SharedFolder],
    native_mounts_that_cannot_be_made_are_refused: [NativeSandbox],
    mnt_data_is_the_working_directory_of_native_code: [NativeSandbox],
}

/// Directories of this machine: `files`, `data` with a file, `out`, and a secret.
struct Directories(tempfile::TempDir);

impl Directories {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        // Sessions of a server that root runs have users of their own.
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("files", 0o755), ("data", 0o755), ("out", 0o777)] {
            fs::create_dir(outer.path().join(name)).unwrap();
            fs::set_permissions(outer.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(outer.path().join("data/input.txt"), "input").unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        Self(outer)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }
}

/// Returns environments that the users of weak kernels reach, who are others than root.
fn environments_for_all_users() -> PathBuf {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return ENVIRONMENTS.clone();
    }
    let folder = shared_folder("belljar-tests").unwrap();
    let setup = ["native", "setup", "--packages", "ipykernel", "--python", SYSTEM_PYTHON, "--native-dir"];
    let run = Belljar::without_cache().args(setup).arg(&folder).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    folder
}

fn serve(options: &[&str]) -> Wire {
    serve_from(&ENVIRONMENTS, options)
}

fn serve_from(environments: &Path, options: &[&str]) -> Wire {
    let mut command = Belljar::without_cache()
        .args(["stdio", "--native-dir", environments.to_str().unwrap(), "--no-install"])
        .args(options)
        .into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

/// Runs a cell. Returns its answer, in which the session's ID is if it is new.
fn run(wire: &mut Wire, id: &str, code: &str) -> Value {
    let answer = text(&wire.tool("execute_code", json!({ "code": code, "session_id": id })));
    serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"))
}

fn open(wire: &mut Wire) -> String {
    let answer = run(wire, "", "pass");
    answer["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned()
}

fn end(mut wire: Wire) {
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
}

fn user_and_native_code_share_the_folder_of_a_session() {
    let directories = Directories::new();
    let mut wire = serve(&["--sandbox", "native", "--toolset", "interpreter", "--files", &directories.text("files")]);
    let id = open(&mut wire);
    let folder = directories.at("files").join(&id);
    let code = "import os; os.makedirs('sub'); open('sub/code.txt', 'w').write('code'); os.getcwd()";
    let answer = run(&mut wire, &id, code);
    assert_eq!((&answer["result"], &answer["files"][0]["name"]), (&json!("'/session'"), &json!("sub/code.txt")));
    assert_eq!(fs::read_to_string(folder.join("sub/code.txt")).unwrap(), "code");
    fs::write(folder.join("user.txt"), "user").unwrap();
    let answer = run(&mut wire, &id, "open('user.txt').read()");
    assert_eq!((&answer["result"], answer.get("files")), (&json!("'user'"), None), "{answer:#}");
    let listed = text(&wire.tool("list_session_files", json!({ "session_id": id })));
    assert!(listed.contains("sub/code.txt") && listed.contains("user.txt"), "{listed}");
    let uri = format!("kernel://{id}/user.txt");
    assert_eq!(wire.ask("resources/read", json!({ "uri": uri }))["result"]["contents"][0]["text"], "user");
    wire.tool("upload_file", json!({ "session_id": id, "name": "up.txt", "content": "uploaded" }));
    assert_eq!(fs::read_to_string(folder.join("up.txt")).unwrap(), "uploaded");
    wire.tool("restart_session", json!({ "session_id": id }));
    assert_eq!(run(&mut wire, &id, "open('up.txt').read()")["result"], "'uploaded'");
    let two = open(&mut wire);
    assert_eq!(run(&mut wire, &two, "import os; os.listdir('.')")["result"], "[]");
    wire.tool("clear_session", json!({ "session_id": two }));
    wire.tool("clear_session", json!({ "session_id": id }));
    end(wire);
    // The files stay, and belong to the owner of the directory.
    let owner = fs::metadata(directories.at("files")).unwrap().uid();
    for path in ["", "sub", "sub/code.txt", "user.txt", "up.txt"] {
        assert_eq!(fs::metadata(folder.join(path)).unwrap().uid(), owner, "{path}");
    }
    assert_eq!(names_in(&directories.at("files")), [id]);
}

fn native_code_does_not_leave_its_folder() {
    let directories = Directories::new();
    let files = directories.text("files");
    let mut wire = serve(&["--sandbox", "native", "--toolset", "interpreter", "--files", &files]);
    let id = open(&mut wire);
    let other = open(&mut wire);
    run(&mut wire, &other, "open('f', 'w').write('of another session')");
    let secret = directories.text("secret");
    for path in [&secret, "../secret", "/session/../secret", &format!("{files}/{other}/f"), &format!("../{other}/f")] {
        let answer = run(&mut wire, &id, &format!("open({path:?}).read()"));
        assert!(answer["error"].as_str().unwrap_or_default().contains("Error"), "{path}: {answer:#}");
    }
    // Links that the code makes are not followed by the host.
    let code = format!(
        "import os\nos.symlink({secret:?}, 'link')\nos.symlink('/', 'root')\nos.symlink('../../secret', 'relative')\nos.mkfifo('fifo')"
    );
    run(&mut wire, &id, &code);
    symlink(&secret, directories.at("files").join(&id).join("of_the_user")).unwrap();
    for name in ["link", "root/etc/passwd", "relative", "fifo", "of_the_user"] {
        let uri = format!("kernel://{id}/{name}");
        let refused = wire.ask("resources/read", json!({ "uri": uri }));
        assert!(refused["error"].is_object(), "{name}: {refused:#}");
    }
    let uploaded = wire.tool("upload_file", json!({ "session_id": id, "name": "link", "content": "x" }));
    assert_eq!(uploaded["isError"], true, "{uploaded:#}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    let owner = fs::metadata(&secret).unwrap().uid();
    end(wire);
    assert_eq!(fs::metadata(&secret).unwrap().uid(), owner);
}

/// Code that replaces `changing` again and again: by a file, links to `HIDDEN` and to the root, a directory with a
/// link, and a FIFO.
const REPLACE: &str = "
import contextlib, itertools, os, threading
os.mkdir('.prepared')
os.mkdir('.prepared/directory')
open('.prepared/file', 'w').write('harmless')
os.symlink(HIDDEN, '.prepared/link')
os.symlink('../' * 20 + HIDDEN[1:], '.prepared/relative')
os.symlink(HIDDEN, '.prepared/directory/within')
os.symlink('/', '.prepared/root')
os.mkfifo('.prepared/fifo')
def replace():
    for name in itertools.cycle(os.listdir('.prepared')):
        try:
            os.rename('.prepared/' + name, 'changing')
            os.rename('changing', '.prepared/' + name)
        except OSError:
            # An uploaded file is in the way of the directory.
            with contextlib.suppress(OSError): os.remove('changing')
threading.Thread(target=replace, daemon=True).start()
";

fn files_that_native_code_replaces_lead_nowhere_else() {
    const HIDDEN: &str = "the content of a file outside";
    let directories = Directories::new();
    fs::write(directories.at("hidden"), HIDDEN).unwrap();
    let (hidden, files) = (directories.text("hidden"), directories.text("files"));
    for options in [&[][..], &["--files", files.as_str()]] {
        let mut wire = serve(&[&["--sandbox", "native", "--toolset", "interpreter"], options].concat());
        let id = open(&mut wire);
        let answer = run(&mut wire, &id, &format!("HIDDEN = {hidden:?}\n{REPLACE}"));
        assert_eq!(answer["success"], true, "{answer:#}");
        let paths = ["changing".to_owned(), "changing/within".into(), format!("changing{hidden}")];
        let (mut rounds, mut harmless) = (0, 0);
        while rounds < 500 || harmless == 0 {
            let uri = format!("kernel://{id}/{}", paths[rounds % paths.len()]);
            let answer = wire.ask("resources/read", json!({ "uri": uri }));
            assert!(!answer.to_string().contains(HIDDEN), "{answer:#}");
            // An upload changes the file if it is there.
            let contents = &answer["result"]["contents"][0]["text"];
            harmless += usize::from(contents == "harmless" || contents == "uploaded");
            let listed: Value =
                serde_json::from_str(&text(&wire.tool("list_session_files", json!({ "session_id": id })))).unwrap();
            for file in listed["files"].as_array().unwrap() {
                assert_ne!(file["size"], HIDDEN.len(), "{listed:#}");
            }
            if rounds % 5 == 0 {
                wire.tool("upload_file", json!({ "session_id": id, "name": "changing", "content": "uploaded" }));
            }
            rounds += 1;
            assert!(rounds < 20_000, "the file was never read");
        }
        assert_eq!(fs::read_to_string(directories.at("hidden")).unwrap(), HIDDEN);
        let answer = run(&mut wire, &id, "sum(thread.name.endswith('(replace)') for thread in threading.enumerate())");
        assert_eq!(answer["result"], "1", "the code no longer replaces the file: {answer:#}");
    }
}

fn native_code_uses_mounts_as_they_allow() {
    let directories = Directories::new();
    let (data, out) = (format!("{}:/data", directories.text("data")), format!("{}:/out:rw", directories.text("out")));
    let mut wire = serve(&["--sandbox", "native", "--toolset", "all", "--mount", &data, "--mount", &out]);
    let id = open(&mut wire);
    for n in 0..2 {
        let use_both = format!("open('/out/{n}', 'w').write('1'); open('/data/input.txt').read()");
        let seen = if n == 0 { wire.run(&use_both) } else { run(&mut wire, &id, &use_both).to_string() };
        assert!(seen.contains("input"), "{seen}");
        assert_eq!(fs::read_to_string(directories.at("out").join(n.to_string())).unwrap(), "1");
    }
    for code in [
        "open('/data/new', 'w')",
        "open('/data/input.txt', 'a')",
        "import os; os.remove('/data/input.txt')",
        "import os; os.chmod('/data/input.txt', 0)",
        "open('/data/../secret')",
    ] {
        let answer = run(&mut wire, &id, code);
        assert!(answer["error"].as_str().unwrap_or_default().contains("Error"), "{code}: {answer:#}");
    }
    assert_eq!(names_in(&directories.at("data")), ["input.txt"]);
    assert_eq!(fs::read_to_string(directories.at("data/input.txt")).unwrap(), "input");
}

fn weak_kernels_use_folders_at_their_own_paths() {
    let directories = Directories::new();
    let (files, data) = (directories.text("files"), directories.text("data"));
    let mount = format!("{data}:{data}");
    let options = ["--sandbox", "native-weak", "--toolset", "interpreter", "--files", &files, "--mount", &mount];
    let mut wire = serve_from(&environments_for_all_users(), &options);
    let id = open(&mut wire);
    let code = format!("open('f', 'w').write('f'); open('{data}/input.txt').read()");
    assert_eq!(run(&mut wire, &id, &code)["result"], "'input'");
    assert_eq!(fs::read_to_string(Path::new(&files).join(&id).join("f")).unwrap(), "f");
    let refused = run(&mut wire, &id, &format!("open('{data}/new', 'w')"));
    assert!(refused["error"].as_str().unwrap().contains("PermissionError"), "{refused:#}");
    end(wire);
}

fn native_mounts_that_cannot_be_made_are_refused() {
    let directories = Directories::new();
    let data = directories.text("data");
    let environments = ENVIRONMENTS.canonicalize().unwrap();
    let covering = environments.parent().unwrap().to_str().unwrap().to_owned();
    for (sandbox, guest, wanted) in [
        ("native", "/session/data", "/session is the working directory"),
        ("native", "/usr/share", "/usr/share is reserved"),
        ("native", "/tmp", "/tmp is reserved"),
        ("native", covering.as_str(), "which native kernels need"),
        ("native-weak", "/data", "without the full native sandbox"),
    ] {
        let run = Belljar::without_cache()
            .args(["stdio", "--native-dir", environments.to_str().unwrap(), "--sandbox", sandbox])
            .args(["--mount", &format!("{data}:{guest}")])
            .run();
        let is_unavailable = sandbox == "native-weak" && run.stderr.contains("Landlock");
        assert!(run.status == Some(2) && (run.stderr.contains(wanted) || is_unavailable), "{guest}: {run:?}");
    }
}

fn mnt_data_is_the_working_directory_of_native_code() {
    let options = ["--sandbox", "native", "--toolset", "interpreter"];
    let write = "from pathlib import Path\nPath('/mnt/data/report.csv').write_text('a,b')\nopen('report.csv').read()";
    let answer = run(&mut serve(&options), "", write);
    assert_eq!((&answer["result"], &answer["files"][0]["name"]), (&json!("'a,b'"), &json!("report.csv")), "{answer}");
    // A directory that is mounted there, or that contains it, takes the place of the link, and gets no link itself.
    for (guest, file) in [("/mnt/data", "input.txt"), ("/mnt/data/inner", "input.txt"), ("/mnt", "input.txt")] {
        let directories = Directories::new();
        let mount = format!("{}:{guest}", directories.text("data"));
        let options = [&options[..], &["--mount", mount.as_str()]].concat();
        let answer = run(&mut serve(&options), "", &format!("open('{guest}/{file}').read()"));
        assert_eq!(answer["result"], "'input'", "{guest}: {answer}");
        assert_eq!(names_in(&directories.at("data")), [file], "{guest}");
    }
}
