//! Files of sessions over the code-execution protocol, and the text editor.

use serde_json::json;

use super::start;
use crate::code_execution::Backend;

#[test]
fn long_files_arrive_whole() {
    let backend = start();
    let session = backend.create();
    let bytes: Vec<u8> = (0..9_000_001_u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    let written = backend.put(&session, "data.bin", Some("in/data.bin"), &bytes).with_status(201);
    assert_eq!((&written["path"], &written["size_bytes"]), (&json!("in/data.bin"), &json!(bytes.len())));
    let read = backend.get(&format!("/sessions/{session}/files?path=in/data.bin"));
    assert!(read.status == 200 && read.body == bytes, "{}: {} bytes", read.status, read.body.len());
    backend.run(&session, "open('empty', 'w')");
    let read = backend.get(&format!("/sessions/{session}/files?path=empty"));
    assert_eq!((read.status, read.body.len()), (200, 0));
}

#[test]
fn files_have_the_name_of_the_path_or_of_the_upload() {
    let backend = start();
    let session = backend.create();
    for (name, path, wanted) in [
        ("a.txt", None, "a.txt"),
        ("C:\\\\folder\\\\b.txt", None, "b.txt"),
        ("../../c.txt", None, "c.txt"),
        ("d.txt", Some("plots/./e.txt"), "plots/e.txt"),
        ("f.txt", Some(""), "f.txt"),
        ("ü ö.txt", None, "ü ö.txt"),
    ] {
        let written = backend.put(&session, name, path, b"x").with_status(201);
        assert_eq!(written["path"], wanted, "{name} {path:?}");
    }
    assert_eq!(backend.files(&session), ["a.txt", "b.txt", "c.txt", "f.txt", "plots/e.txt", "ü ö.txt"]);
    let listed = backend.get(&format!("/sessions/{session}/files/list?path=plots")).with_status(200);
    let file = json!({ "path": "plots/e.txt", "size_bytes": 1, "mime_type": "text/plain" });
    assert_eq!(listed, json!({ "files": [file] }));
    backend.get(&format!("/sessions/{session}/files/list?path=plot")).refusal(404);
    backend.get(&format!("/sessions/{session}/files?path=plot")).refusal(404);
    assert!(backend.get(&format!("/sessions/{session}/files?path=plots")).refusal(400).contains("directory"));
}

#[test]
fn no_path_leads_out_of_the_session() {
    let backend = start();
    let session = backend.create();
    let code = "import os\nos.symlink('/etc', 'link')\nos.symlink('/etc/passwd', 'passwd')\n\
                os.mkdir('.hidden')\nopen('.hidden/x', 'w')\nos.symlink('.hidden', 'to_hidden')";
    assert_eq!(backend.run(&session, code)["return_code"], 0);
    for path in ["..", "../x", "%2e%2e/x", "%2E%2E%2Fx", "a/../../x", "/etc/passwd", "%2fetc/passwd", "//etc/passwd"] {
        for of in ["files", "files/list"] {
            backend.get(&format!("/sessions/{session}/{of}?path={path}")).refusal(403);
        }
    }
    for path in ["../x", "a/../../x", "/tmp/x", "..", "./../../x"] {
        backend.put(&session, "x", Some(path), b"x").refusal(403);
        let command = json!({ "command": "create", "path": path, "file_text": "x" });
        let content = backend.edit(&session, &command);
        assert!(content["return_code"] == 1 && content["stderr"].as_str().unwrap().contains("outside"), "{content}");
    }
    for path in [".hidden/x", "a%00b", "..%5cx", "a%0ab", "", "."] {
        backend.get(&format!("/sessions/{session}/files?path={path}")).refusal(400);
    }
    for path in ["link/passwd", "passwd", "link", "to_hidden/x"] {
        let read = backend.get(&format!("/sessions/{session}/files?path={path}"));
        assert_eq!(read.status, 404, "{path}: {read:?}");
        let written = backend.put(&session, "x", Some(path), b"x");
        assert_eq!(written.status, 400, "{path}: {written:?}");
    }
    assert_eq!(backend.files(&session), [""; 0]);
}

#[test]
fn long_and_many_files_are_refused() {
    let backend = Backend::start(["--max-body", "1MB", "--session-disk", "100KB"]);
    let session = backend.create();
    backend.put(&session, "a", None, &[b'x'; 2 << 20]).refusal(413);
    backend.put(&session, "a", None, &[b'x'; 200 << 10]).refusal(413);
    assert_eq!(backend.files(&session), [""; 0]);
    backend.put(&session, "a", None, &[b'x'; 50 << 10]).with_status(201);
    let command = json!({ "command": "create", "path": "b", "file_text": "y".repeat(90 << 10) });
    let content = backend.edit(&session, &command);
    assert!(content["return_code"] == 1 && content["stderr"].as_str().unwrap().contains("fit"), "{content}");
}

#[test]
fn browsers_do_not_show_files_as_pages_of_the_server() {
    let backend = start();
    let session = backend.create();
    backend.put(&session, "page.html", None, b"<script>alert(1)</script>").with_status(201);
    let read = backend.get(&format!("/sessions/{session}/files?path=page.html"));
    for header in [
        "content-type: text/html",
        "content-disposition: attachment",
        "x-content-type-options: nosniff",
        "content-security-policy: default-src 'none'; sandbox",
    ] {
        assert!(read.head.contains(header), "{header}: {}", read.head);
    }
}

#[test]
fn text_editor_views_and_edits_files() {
    let backend = start();
    let session = backend.create();
    let edit = |command: &str, fields: serde_json::Value| {
        let mut input = json!({ "command": command, "path": "notes/a.txt" });
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let content = backend.edit(&session, &input);
        let status = content["return_code"].as_i64().unwrap();
        let stream = if status == 0 { "stdout" } else { "stderr" };
        (status, content[stream].as_str().unwrap().to_owned())
    };
    let view = || edit("view", json!({})).1;
    assert_eq!(edit("create", json!({ "file_text": "one\ntwo\nthree" })), (0, "Created notes/a.txt\n".into()));
    assert!(edit("create", json!({ "file_text": "" })).1.contains("exists already"));
    assert_eq!(edit("view", json!({ "view_range": [2, -1] })), (0, "two\nthree".into()));
    assert_eq!(edit("view", json!({ "view_range": [1, 2] })), (0, "one\ntwo\n".into()));
    for range in [[0, 1], [4, 5], [2, 1], [-1, -1], [i64::MIN, i64::MAX]] {
        assert!(edit("view", json!({ "view_range": range })).1.contains("3 lines"), "{range:?}");
    }
    assert_eq!(edit("str_replace", json!({ "old_str": "two", "new_str": "2" })).0, 0);
    assert!(edit("str_replace", json!({ "old_str": "two", "new_str": "2" })).1.contains("does not contain"));
    assert!(edit("str_replace", json!({ "old_str": "e", "new_str": "" })).1.contains("3 times"));
    assert_eq!(edit("insert", json!({ "insert_line": 0, "new_str": "zero" })).0, 0);
    assert_eq!(edit("insert", json!({ "insert_line": 4, "new_str": "four\n" })).0, 0);
    assert_eq!(view(), "zero\none\n2\nthree\nfour\n");
    assert!(edit("insert", json!({ "insert_line": 6, "new_str": "" })).1.contains("after its end"));
    // The cells of the session see the same file.
    assert_eq!(backend.run(&session, "print(open('notes/a.txt').read(), end='')")["stdout"], view());
    for wanted in ["zero\none\n2\nthree", "one\n2\nthree", "one\ntwo\nthree"] {
        assert_eq!(edit("undo_edit", json!({})), (0, "Reverted notes/a.txt\n".into()));
        assert_eq!(view(), wanted);
    }
    assert!(edit("undo_edit", json!({})).1.contains("no edit"));
    backend.run(&session, "open('b.bin', 'wb').write(b'\\xff')");
    let content = backend.edit(&session, &json!({ "command": "view", "path": "b.bin" }));
    assert!(content["stderr"].as_str().unwrap().contains("not UTF-8"), "{content}");
    let content = backend.edit(&session, &json!({ "command": "view", "path": "." }));
    assert_eq!(content["stdout"], "b.bin\nnotes/a.txt\n");
    let content = backend.edit(&session, &json!({ "command": "view", "path": "missing" }));
    assert_eq!(content["return_code"], 1, "{content}");
}

#[test]
fn concurrent_edits_are_all_done() {
    let backend = start();
    let session = backend.create();
    let text: String = (0..10).map(|line| format!("line {line};\n")).collect();
    backend.put(&session, "a.txt", None, text.as_bytes()).with_status(201);
    std::thread::scope(|scope| {
        for line in 0..10 {
            let (backend, session) = (&backend, &session);
            scope.spawn(move || {
                let (old, new) = (format!("line {line};"), format!("edited {line};"));
                let command = json!({ "command": "str_replace", "path": "a.txt", "old_str": old, "new_str": new });
                assert_eq!(backend.edit(session, &command)["return_code"], 0);
            });
        }
    });
    let read = backend.get(&format!("/sessions/{session}/files?path=a.txt"));
    assert_eq!(read.text(), text.replace("line", "edited"));
}
