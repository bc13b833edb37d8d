//! The code-execution protocol of servers whose code runs in native kernels, which have a shell.

use serde_json::json;

use super::native_calls::ENVIRONMENTS;
use crate::code_execution::{Backend, check_conformance};

belljar_testing::trials! {
    native_backend_conforms_to_the_protocol: [NativeSandbox],
    commands_run_in_the_session_s_sandbox: [NativeSandbox],
}

fn start() -> Backend {
    let environments = ENVIRONMENTS.to_str().unwrap();
    Backend::start(["--sandbox", "native", "--native-dir", environments])
}

fn native_backend_conforms_to_the_protocol() {
    check_conformance(&start());
}

fn commands_run_in_the_session_s_sandbox() {
    let backend = start();
    let session = backend.create();
    assert_eq!(backend.run(&session, "x = 1\nopen('a.txt', 'w').write('a')")["return_code"], 0);
    let run = |command: &str| backend.shell(&session, command);
    for (command, status, stdout, stderr) in [
        ("cat a.txt; echo b > b.txt", 0, "a", ""),
        ("echo out; echo err >&2; exit 3", 3, "out\n", "err\n"),
        ("echo \"$0\" '%d' !x \"it's\" ünï \\\\ | tail -c 20", 0, "it's ünï \\\n", ""),
        ("printf 'a\\nb' | wc -l", 0, "1\n", ""),
        ("kill -9 $$", 137, "", ""),
        ("sleep 600 & echo started", 0, "started\n", ""),
        ("head -c 300000 /dev/zero | tr '\\0' x | wc -c", 0, "300000\n", ""),
    ] {
        let content = run(command);
        assert_eq!((&content["return_code"], &content["stderr"]), (&json!(status), &json!(stderr)), "{content}");
        assert!(content["stdout"].as_str().unwrap().ends_with(stdout), "{command}: {content}");
    }
    let content = run("no-such-command");
    assert!(content["return_code"] == 127 && content["stderr"].as_str().unwrap().contains("not found"), "{content}");
    let content = run("cat /etc/shadow");
    assert!(content["return_code"] != 0 && content["stdout"] == "", "{content}");
    assert_eq!(run("touch c.txt")["content"][0]["file_id"], "c.txt");
    // The session has the files of the commands, and no variables of theirs.
    let seen = backend
        .run(&session, "print(open('b.txt').read(), end='')\nsorted(set(dir()) & {'run', 'scope', 'subprocess'})");
    assert_eq!(seen["stdout"], "b\n[]\n", "{seen}");
    // The limit is longer than the shell takes to start on a busy machine.
    let input = json!({ "command": "echo begun; sleep 600" });
    let call = json!({ "tool": "bash_code_execution", "input": input, "timeout_seconds": 10 });
    let answer = backend.post(&format!("/sessions/{session}/exec"), &call).with_status(200);
    let content = &answer["result_block"]["content"];
    assert_eq!((&content["return_code"], &content["stdout"]), (&json!(124), &json!("begun\n")), "{content}");
    let stderr = content["stderr"].as_str().unwrap();
    assert!(stderr.contains("longer than 10 s") && !stderr.contains("subprocess"), "{content}");
    assert_eq!(backend.run(&session, "print(x)")["stdout"], "1\n");
}
