//! Tests of a session's files, from inside and from the host.

use belljar_core::files::{FileError, Range};
use belljar_testing::Trial;

use crate::trials::harness::{Session, in_each, limits};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("files_are_shared_with_the_host", files_are_shared_with_the_host),
        in_each("guest_links_are_not_followed", guest_links),
        in_each("files_swapped_for_links_are_not_followed", swapped_files),
        in_each("session_disk_quota_is_enforced", disk_quota),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn files_are_shared_with_the_host(session: &mut Session) {
    session.kernel.write("data/in.csv", b"a,b\n1,2\n").unwrap();
    assert_eq!(
        session.text("import pandas as pd\nprint(pd.read_csv('data/in.csv').to_dict('list'))"),
        "{'a': [1], 'b': [2]}\n"
    );
    session.text("open('out.txt', 'w').write('from inside')\nopen('.hidden', 'w').write('x')\nopen('data/in.csv', 'a').write('3,4\\n')");
    let mut listed: Vec<String> = session.kernel.files().into_iter().map(|file| file.path).collect();
    listed.sort();
    assert_eq!(listed, ["data/in.csv", "out.txt"]);
    assert_eq!(session.kernel.read("out.txt", Range::default()).unwrap(), b"from inside");
    assert_eq!(session.kernel.read("data/in.csv", Range { offset: 8, length: None }).unwrap(), b"3,4\n");
    session.kernel.write("out.txt", b"from outside").unwrap();
    assert_eq!(
        session.text("import os\nopen('out.txt').read(), os.access('out.txt', os.W_OK)"),
        "('from outside', True)"
    );
}

fn guest_links(session: &mut Session) {
    session.text(
        "import os\nos.symlink('/etc/passwd', 'passwd')\nos.symlink('/', 'root')\nos.mkfifo('fifo')\n\
         os.symlink('.', 'here')\nopen('plain', 'w').write('x')",
    );
    for path in ["passwd", "root/etc/passwd", "fifo", "here/plain", "here/passwd"] {
        assert!(session.kernel.read(path, Range::default()).is_err(), "{path}");
        assert!(session.kernel.write(path, b"x").is_err(), "{path}");
    }
    let listed: Vec<String> = session.kernel.files().into_iter().map(|file| file.path).collect();
    assert_eq!(listed, ["plain"]);
}

/// The guest replaces files and directories by links while the host reads, writes and lists them.
fn swapped_files(session: &mut Session) {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let code = format!(
        "import os, threading\nos.mkdir('d'); open('d/secret', 'w').write('mine'); open('f', 'w').write('mine')\n\
         def swap():\n    while True:\n        \
         os.symlink({secret:?}, 't'); os.rename('t', 'f'); open('t', 'w').write('mine'); os.rename('t', 'f')\n        \
         os.rename('d', 'x'); os.symlink({:?}, 'd'); os.unlink('d'); os.rename('x', 'd')\n\
         threading.Thread(target=swap, daemon=True).start()",
        outside.path()
    );
    session.text(&code);
    let mut reads = 0;
    for _ in 0..2000 {
        for path in ["f", "d/secret"] {
            if let Ok(bytes) = session.kernel.read(path, Range::default()) {
                assert!(bytes != b"secret", "{path} was read through a link");
                reads += 1;
            }
            let _ = session.kernel.write(path, b"mine");
        }
    }
    for file in session.kernel.files() {
        assert!(["f", "t", "d/secret", "x/secret"].contains(&file.path.as_str()), "{}", file.path);
    }
    assert!(reads > 0);
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
}

fn disk_quota(session: &mut Session) {
    let disk = usize::try_from(limits().disk).unwrap();
    assert_eq!(session.kernel.write("large", &vec![0; disk + 1]), Err(FileError::Full("large".into())));
    assert_eq!(session.text("1"), "1");
}
