//! `--mount`: a directory of the host in the sandbox, and nothing else of the host.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::harness::{Belljar, Run};

/// Creates a directory to mount, next to a secret outside of it.
fn directories() -> tempfile::TempDir {
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir_all(outer.path().join("data/sub")).unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    fs::write(outer.path().join("data/file"), "content").unwrap();
    fs::write(outer.path().join("data/sub/deep"), "deep").unwrap();
    outer
}

fn run(outer: &Path, suffix: &str, code: &str) -> Run {
    let mount = format!("{}:/data{suffix}", outer.join("data").display());
    Belljar::new().args(["run", "--mount", &mount, "-c", code]).run()
}

#[test]
fn files_are_read_and_listed() {
    let outer = directories();
    let code = "import os\nprint(open('/data/file').read(), open('/data/sub/deep').read(), sorted(os.listdir('/data')))\n\
                print([sorted(f) for _, _, f in os.walk('/data')], os.path.getsize('/data/file'))";
    let run = run(outer.path(), "", code);
    assert_eq!(run.stdout, "content deep ['file', 'sub']\n[['file'], ['deep']] 7\n", "{run:?}");
}

#[test]
fn mounts_are_read_only_by_default() {
    for code in [
        "open('/data/new', 'w')",
        "open('/data/file', 'a')",
        "open('/data/file', 'r+')",
        "import os; os.unlink('/data/file')",
        "import os; os.rename('/data/file', '/data/other')",
        "import os; os.rename('/data/file', '/tmp/other')",
        "import os; os.mkdir('/data/d')",
        "import os; os.rmdir('/data/sub')",
        "import os; os.symlink('x', '/data/link')",
        "import os; os.truncate('/data/file', 0)",
        "import os; os.chmod('/data/file', 0)",
        "import os; os.utime('/data/file', (0, 0))",
        "import shutil; shutil.rmtree('/data')",
        "import os; os.rmdir('/data')",
    ] {
        for suffix in ["", ":ro"] {
            let outer = directories();
            let before = fs::metadata(outer.path().join("data/file")).unwrap().modified().unwrap();
            let run = run(outer.path(), suffix, code);
            assert_eq!(run.status, Some(1), "{code}: {run:?}");
            assert_eq!(fs::read_to_string(outer.path().join("data/file")).unwrap(), "content", "{code}");
            assert_eq!(fs::metadata(outer.path().join("data/file")).unwrap().modified().unwrap(), before, "{code}");
            assert_eq!(fs::read_dir(outer.path().join("data")).unwrap().count(), 2, "{code}");
        }
    }
}

#[test]
fn writable_mounts_write_to_the_host() {
    let outer = directories();
    let code = "import os\nopen('/data/new', 'w').write('n' * 100_000)\nopen('/data/file', 'a').write('!')\n\
                os.mkdir('/data/d'); os.rename('/data/sub/deep', '/data/d/moved'); os.rmdir('/data/sub')";
    let run = run(outer.path(), ":rw", code);
    assert_eq!(run.status, Some(0), "{run:?}");
    let data = outer.path().join("data");
    assert_eq!(fs::read(data.join("new")).unwrap().len(), 100_000);
    assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "content!");
    assert_eq!(fs::read_to_string(data.join("d/moved")).unwrap(), "deep");
    assert!(!data.join("sub").exists());
}

#[cfg(unix)]
#[test]
fn no_path_leads_out_of_a_mount() {
    let outer = directories();
    let data = outer.path().join("data");
    symlink("../secret", data.join("relative")).unwrap();
    symlink(outer.path().join("secret"), data.join("absolute")).unwrap();
    symlink("..", data.join("up")).unwrap();
    symlink("/", data.join("root")).unwrap();
    symlink("sub/../../secret", data.join("winding")).unwrap();
    symlink("/etc", data.join("etc")).unwrap();
    for path in [
        "/data/../secret",
        "/data/sub/../../secret",
        "/data/relative",
        "/data/absolute",
        "/data/up/secret",
        "/data/winding",
        "/data/root/etc/passwd",
        "/data/etc/passwd",
        "/data//..//secret",
    ] {
        for suffix in ["", ":rw"] {
            for mode in ["r", "a", "w"] {
                let run = run(outer.path(), suffix, &format!("print(open({path:?}, {mode:?}).read())"));
                assert_eq!((run.status, run.stdout.as_str()), (Some(1), ""), "{path} {mode}: {run:?}");
            }
        }
    }
    assert_eq!(fs::read_to_string(outer.path().join("secret")).unwrap(), "secret");
    // A link that the code creates does not lead out either.
    let code = "import os\nos.symlink('/etc/passwd', '/data/mine')\nos.symlink('../secret', '/data/mine2')\n\
                for p in '/data/mine', '/data/mine2':\n  try: print(open(p).read())\n  except OSError: print('no')";
    let run = run(outer.path(), ":rw", code);
    assert!(!run.stdout.contains("secret") && !run.stdout.contains("root:"), "{run:?}");
}

#[cfg(unix)]
#[test]
fn links_within_a_mount_are_followed() {
    let outer = directories();
    symlink("sub/deep", outer.path().join("data/link")).unwrap();
    symlink("sub", outer.path().join("data/directory")).unwrap();
    let run = run(outer.path(), "", "print(open('/data/link').read(), open('/data/directory/deep').read())");
    assert_eq!(run.stdout, "deep deep\n", "{run:?}");
}

#[cfg(unix)]
#[test]
fn special_files_are_not_opened() {
    let outer = directories();
    let fifo = outer.path().join("data/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Opening the FIFO would block until a writer opens it.
    let run = run(outer.path(), "", "open('/data/fifo').read()");
    assert_eq!(run.status, Some(1), "{run:?}");
}

#[test]
fn several_directories_are_mounted_at_given_paths() {
    let outer = directories();
    let path = outer.path().display();
    let run = Belljar::new()
        .args(["run", "--mount", &format!("{path}/data:/a/b"), "--mount", &format!("{path}/data/sub:/c:rw")])
        .args([
            "-c",
            "print(open('/a/b/file').read()); open('/c/new', 'w').write('1'); print(open('/a/b/sub/new').read())",
        ])
        .run();
    assert_eq!(run.stdout, "content\n1\n", "{run:?}");
}

#[test]
fn mount_takes_the_place_of_mnt_data() {
    let outer = directories();
    for guest in ["/mnt/data", "/mnt/data/", "/mnt/data/inner", "/mnt"] {
        let mount = format!("{}:{guest}", outer.path().join("data").display());
        let code = format!("import os\nprint(open('{guest}/file').read(), os.listdir('/home'))");
        let run = Belljar::new().args(["run", "--mount", &mount, "-c", &code]).run();
        assert_eq!(run.stdout, "content []\n", "{guest}: {run:?}");
    }
    let run = Belljar::run_with(["-c", "import os\nos.chdir('/mnt/data')\nprint(os.getcwd(), os.listdir('/mnt'))"]);
    assert_eq!(run.stdout, "/home ['data']\n", "{run:?}");
}

#[test]
fn file_that_is_not_found_hints_at_mounts_if_there_are_none() {
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("{}:/data", directory.path().display());
    let hint = "hint: the code sees no data files of this machine: --mount ";
    let unmounted = Belljar::run_with(["-c", "open('sales.csv')"]);
    assert!(unmounted.status == Some(1) && unmounted.stderr.contains(hint), "{unmounted:?}");
    for args in [&["--mount", mount.as_str(), "-c", "open('sales.csv')"][..], &["-c", "1 / 0"]] {
        let run = Belljar::run_with(args.iter().copied());
        assert!(run.status == Some(1) && !run.stderr.contains("hint: "), "{run:?}");
    }
}
