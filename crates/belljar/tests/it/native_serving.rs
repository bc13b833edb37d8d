//! Servers and calls whose code runs in native kernels, in a real environment and the real sandbox. On a machine where the
//! sandbox does not stand, that is said aloud.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Belljar, Run};
use crate::serve::leavings::left;
use crate::serve::wire::{Wire, text};

/// An environment of `belljar native setup`, made once.
pub(crate) static ENVIRONMENTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-environments");
    let setup = ["native", "setup", "--packages", "ipykernel,matplotlib,nbformat,numpy,pandas", "--native-dir"];
    let run = Belljar::without_cache().args(setup).arg(&root).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    root
});

/// Whether this machine has the sandbox; where it has none, that is said aloud.
pub(crate) fn sandbox_stands() -> bool {
    static STATUS: LazyLock<String> = LazyLock::new(|| {
        let status = Belljar::without_cache().args(["native", "status", "--native-dir"]).arg(&*ENVIRONMENTS).run();
        assert_eq!(status.status, Some(0), "{status:?}");
        status.stdout
    });
    let stands = STATUS.starts_with("sandbox      stands (--sandbox native)");
    if !stands {
        eprintln!("SKIPPED: {}", *STATUS);
    }
    stands
}

/// Calls a tool of a server with these options; `None` where this machine has no such sandbox.
fn call(options: &str, tool: &str, arguments: &Value) -> Option<Run> {
    if !sandbox_stands() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = format!(
        "'{}' stdio --sandbox native --native-dir '{}' {options}",
        env!("CARGO_BIN_EXE_belljar"),
        ENVIRONMENTS.display()
    );
    let arguments = arguments.to_string();
    let run = Belljar::without_cache().args(["call", &server, tool, &arguments]).directory(folder.path()).run();
    Some(run)
}

/// The tool's structured answer.
fn answer(options: &str, tool: &str, arguments: &Value) -> Option<Value> {
    let run = call(options, tool, arguments)?;
    let begin = run.stdout.find('{').unwrap_or_else(|| panic!("{run:?}"));
    let mut values = serde_json::Deserializer::from_str(&run.stdout[begin..]).into_iter();
    Some(values.next().unwrap().unwrap_or_else(|error| panic!("{error}: {run:?}")))
}

fn python(code: &str) -> Value {
    json!({ "python_code": code })
}

#[test]
fn a_call_runs_in_a_native_kernel_of_its_own() {
    let code = "import sys\nprint(sys.platform, x)\n{'a': [1.0, float('nan')], 'b': (1, 2)}";
    let arguments = json!({ "python_code": code, "global_variables": { "x": ["é", 2.5, null] } });
    let Some(answer) = answer("", "run_python_code", &arguments) else { return };
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(answer["output"], json!(["linux ['é', 2.5, None]"]));
    assert_eq!(answer["return_value"], json!({ "a": [1.0, "NaN"], "b": [1, 2] }));
}

#[test]
fn only_devices_are_handed_in_and_the_space_for_packages_has_an_end() {
    if !sandbox_stands() {
        return;
    }
    // One that is there in any case; others are in the tests of the sandbox, which make some.
    let with = answer("--device /dev/full", "run_python_code", &python("open('/dev/full', 'rb').read(1)")).unwrap();
    assert_eq!(with["status"], "success", "{with}");
    for path in ["/etc/passwd", "/dev/belljar-no-such-device", "/dev/../etc/passwd", "/dev/mem"] {
        let run = call(&format!("--device {path}"), "run_python_code", &python("1")).unwrap();
        assert!(run.status != Some(0) && run.stderr.contains(path), "{path}: {run:?}");
    }
    let arguments = json!({ "python_code": "1", "dependencies": ["cowsay"] });
    let full = answer("--package-space 1KB", "run_python_code", &arguments).unwrap();
    assert_eq!(full["status"], "install-error", "{full}");
}

#[test]
fn what_goes_wrong_in_a_native_kernel_is_an_outcome() {
    for (code, wanted) in [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("import ctypes; ctypes.string_at(0)", "crashed its interpreter"),
        ("while True: pass", "Limit reached: time"),
        ("import socket; socket.create_connection(('1.1.1.1', 80), 2)", "Network is unreachable"),
        ("open('/etc/shadow')", "Error"),
    ] {
        let Some(answer) = answer("--timeout 2", "run_python_code", &python(code)) else { return };
        assert_eq!(answer["status"], "run-error", "{code}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(wanted), "{code}: {answer}");
    }
}

#[test]
fn packages_of_native_kernels_keep_to_the_policy() {
    let arguments = json!({ "python_code": "import cowsay; cowsay.__name__", "dependencies": ["cowsay"] });
    let Some(installed) = answer("", "run_python_code", &arguments) else { return };
    assert_eq!(
        (&installed["status"], &installed["return_value"]),
        (&json!("success"), &json!("cowsay")),
        "{installed}"
    );
    for (options, wanted) in [
        ("--deny-packages 'cow*'", "denied"),
        ("--no-install", "cannot be installed in this session"),
        ("--offline", "cannot be installed in this session"),
    ] {
        let refused = answer(options, "run_python_code", &arguments).unwrap();
        assert_eq!(refused["status"], "install-error", "{options}: {refused}");
        assert!(refused["error"].as_str().unwrap().contains(wanted), "{options}: {refused}");
    }
    let pip = json!({ "code": "%pip install cowsay" });
    let session = answer("--offline --toolset interpreter", "execute_code", &pip).unwrap();
    assert!(session.to_string().contains("cannot be installed in this session"), "{session}");
}

#[test]
fn native_calls_and_sessions_each_keep_their_own_limits() {
    let options = "--toolset all --memory 500MB --session-memory 1500MB --max-output 1MB";
    let large = "x = bytearray(1000 << 20)\nlen(x) >> 20";
    let Some(call) = answer(options, "run_python_code", &python(large)) else { return };
    assert!(call["status"] == "run-error" && call["error"].as_str().unwrap().contains("MemoryError"), "{call}");
    let session = answer(options, "execute_code", &json!({ "code": large })).unwrap();
    assert_eq!((&session["success"], &session["result"]), (&json!(true), &json!("1000")), "{session}");

    let much = "print('x' * (3 << 20))";
    let call = answer(options, "run_python_code", &python(much)).unwrap();
    assert!(call["error"].as_str().unwrap().contains("Limit reached: output"), "{}", call["error"]);
    let session = answer(options, "execute_code", &json!({ "code": much })).unwrap();
    assert_eq!(session["success"], true, "{}", session["error"]);
}

#[test]
fn a_native_server_leaves_no_files() {
    if answer("", "run_python_code", &python("1")).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = ["stdio", "--sandbox", "native", "--toolset", "interpreter", "--native-dir"];
    let belljar = Belljar::without_cache().args(server).arg(&*ENVIRONMENTS).env("TMPDIR", folder.path());
    let mut command = belljar.into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.greet();
    let cell = json!({ "code": "open('secret.txt', 'w').write('x'); 6 * 7" });
    let answer = text(&wire.tool("execute_code", cell));
    assert!(answer.contains("42"), "{answer}");
    let names = left(folder.path());
    assert!(names.iter().any(|name| name.starts_with("belljar-")), "{names:?}");
    // By now the modules that later sessions find are being imported, which nobody waits for.
    std::thread::sleep(Duration::from_secs(1));
    wire.end_input();
    assert!(wire.child.wait().unwrap().success());
    assert_eq!(left(folder.path()), [""; 0]);
}

#[test]
fn a_native_call_gets_what_its_block_or_its_imports_say() {
    let block = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\"cowsay<7\", \"tomli; python_version < '3.1'\"]\n# ///\n\
                 import cowsay; cowsay.__name__";
    let Some(said) = answer("", "run_python_code", &python(block)) else { return };
    assert_eq!((&said["status"], &said["return_value"]), (&json!("success"), &json!("cowsay")), "{said}");
    assert_eq!(said["dependencies"], json!(["cowsay", "tomli"]), "{said}");

    // What the environment has is not installed; what nobody has is no fault until it is imported.
    let imports = "import numpy, cowsay\ntry:\n    import belljar_no_such_module\nexcept ImportError as error:\n    print(error.name)\ncowsay.__name__";
    let shown = answer("", "run_python_code", &python(imports)).unwrap();
    assert_eq!((&shown["status"], &shown["return_value"]), (&json!("success"), &json!("cowsay")), "{shown}");
    assert_eq!((&shown["dependencies"], &shown["output"]), (&json!(["cowsay"]), &json!(["belljar_no_such_module"])));

    let nothing = answer("", "run_python_code", &python("import cowsay, belljar_no_such_module")).unwrap();
    let error = nothing["error"].as_str().unwrap();
    assert_eq!(nothing["status"], "run-error", "{nothing}");
    assert!(error.contains("belljar_no_such_module cannot be installed: "), "{error}");

    let old = "# /// script\n# requires-python = \"<3\"\n# ///\n1";
    let refused = answer("", "run_python_code", &python(old)).unwrap();
    assert_eq!(refused["status"], "install-error", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("requires Python <3"), "{refused}");
}

#[test]
fn a_session_runs_in_a_native_kernel_with_figures_and_files() {
    let code = "import pandas as pd, matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()\n\
                open('table.csv', 'w').write('a\\n1\\n')\npd.read_csv('table.csv')";
    let Some(answer) = answer("--toolset interpreter", "execute_code", &json!({ "code": code })) else { return };
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["result"], "   a\n0  1", "{answer}");
    let mut names: Vec<&str> =
        answer["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["inline_1_1.png", "table.csv"], "{answer}");
}

#[test]
fn what_a_native_server_cannot_do_is_said_at_once() {
    let nowhere = tempfile::tempdir().unwrap();
    let start = |options: &[&str]| Belljar::without_cache().arg("stdio").args(options).run();
    let none = start(&["--sandbox", "native", "--native-dir", nowhere.path().to_str().unwrap()]);
    assert!(none.status == Some(2) && none.stderr.contains("belljar native setup"), "{none:?}");
    let missing = start(&["--sandbox", "native", "--venv", "/nonexistent"]);
    assert!(missing.status == Some(2) && missing.stderr.contains("/nonexistent"), "{missing:?}");
    let deps = start(&["--sandbox", "native", "--native-dir", ENVIRONMENTS.to_str().unwrap(), "--deps", "rich"]);
    assert!(deps.status == Some(2) && deps.stderr.contains("--deps is for --sandbox wasm"), "{deps:?}");
    let stray = start(&["--venv", "/nonexistent"]);
    assert!(stray.status == Some(2) && stray.stderr.contains("--venv is for native kernels"), "{stray:?}");
    let directory = ENVIRONMENTS.to_str().unwrap();
    let data = ["--toolset", "interpreter", "--sandbox", "native", "--native-dir", directory, "--data-dir", "/tmp/x"];
    let kept = start(&data);
    assert!(kept.status == Some(2) && kept.stderr.contains("--data-dir"), "{kept:?}");
}
