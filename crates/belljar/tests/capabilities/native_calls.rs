//! Servers and calls whose code runs in native kernels, in a real environment and the real sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::harness::{Belljar, Run, names_in};
use crate::wire::{Wire, text};

belljar_testing::trials! {
    call_runs_in_a_native_kernel_of_its_own: [NativeSandbox],
    devices_and_package_space_have_limits: [NativeSandbox],
    failures_in_a_native_kernel_are_outcomes: [NativeSandbox],
    exception_that_reads_like_a_time_limit_is_an_exception: [NativeSandbox],
    exits_of_native_calls_have_a_status_or_a_text: [NativeSandbox],
    memory_limit_of_a_native_call_is_reported_as_that: [NativeSandbox],
    packages_of_native_kernels_follow_the_policy: [NativeSandbox],
    native_calls_and_sessions_have_their_own_limits: [NativeSandbox],
    native_server_leaves_no_files: [NativeSandbox],
    native_call_installs_declared_or_imported_packages: [NativeSandbox],
    asyncio_programs_run_in_native_calls: [NativeSandbox],
    native_session_installs_imports: [NativeSandbox],
    native_installations_are_in_the_audit_log: [NativeSandbox],
    native_calls_install_optional_dependencies_of_pandas: [NativeSandbox],
    native_servers_offer_tools_that_work: [NativeSandbox],
    weak_kernels_of_root_need_a_reachable_environment: [Root, WeakSandbox],
    native_session_returns_figures_and_files: [NativeSandbox],
    pipelined_cells_of_a_native_session_run_in_order: [NativeSandbox],
    unsupported_options_are_refused_at_the_start: [],
}

/// Rounds of pipelined cells: ten thousand cells altogether.
const PIPELINED_ROUNDS: usize = 10;
const CELLS_PER_ROUND: usize = 1000;

/// A folder of environments that `belljar native setup` made.
pub(crate) static ENVIRONMENTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native-environments");
    let setup = ["native", "setup", "--packages", "ipykernel,matplotlib,nbformat,numpy,pandas", "--native-dir"];
    let run = Belljar::without_cache().args(setup).arg(&root).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    root
});

/// Calls a tool of a server with these options.
fn call(options: &str, tool: &str, arguments: &Value) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let server = format!(
        "'{}' stdio --sandbox native --native-dir '{}' {options}",
        env!("CARGO_BIN_EXE_belljar"),
        ENVIRONMENTS.display()
    );
    let arguments = arguments.to_string();
    Belljar::without_cache().args(["call", &server, tool, &arguments]).directory(folder.path()).run()
}

/// Calls a tool and returns its structured answer.
pub(crate) fn answer(options: &str, tool: &str, arguments: &Value) -> Value {
    let run = call(options, tool, arguments);
    let begin = run.stdout.find('{').unwrap_or_else(|| panic!("{run:?}"));
    let mut values = serde_json::Deserializer::from_str(&run.stdout[begin..]).into_iter();
    values.next().unwrap().unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

fn python(code: &str) -> Value {
    json!({ "python_code": code })
}

fn call_runs_in_a_native_kernel_of_its_own() {
    let code = "import sys\nprint(sys.platform, x)\n{'a': [1.0, float('nan')], 'b': (1, 2)}";
    let arguments = json!({ "python_code": code, "global_variables": { "x": ["é", 2.5, null] } });
    let answer = answer("", "run_python_code", &arguments);
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(answer["output"], json!(["linux ['é', 2.5, None]"]));
    assert_eq!(answer["return_value"], json!({ "a": [1.0, "NaN"], "b": [1, 2] }));
}

fn devices_and_package_space_have_limits() {
    // Every machine has this device; the sandbox's tests create others.
    let with = answer("--device /dev/full", "run_python_code", &python("open('/dev/full', 'rb').read(1)"));
    assert_eq!(with["status"], "success", "{with}");
    for path in ["/etc/passwd", "/dev/belljar-no-such-device", "/dev/../etc/passwd", "/dev/mem"] {
        let run = call(&format!("--device {path}"), "run_python_code", &python("1"));
        assert!(run.status != Some(0) && run.stderr.contains(path), "{path}: {run:?}");
    }
    let arguments = json!({ "python_code": "1", "dependencies": ["cowsay"] });
    let full = answer("--package-space 1KB", "run_python_code", &arguments);
    assert_eq!(full["status"], "install-error", "{full}");
}

fn failures_in_a_native_kernel_are_outcomes() {
    for (code, wanted) in [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("import ctypes; ctypes.string_at(0)", "crashed its interpreter"),
        ("import socket; socket.create_connection(('1.1.1.1', 80), 2)", "this sandbox has no network access"),
        ("import urllib.request; urllib.request.urlopen('https://example.org')", "this sandbox has no network access"),
        ("async def fail(): 1 / 0\nimport asyncio; asyncio.run(fail())", "ZeroDivisionError: division by zero"),
        ("open('/etc/shadow')", "Error"),
    ] {
        let answer = answer("", "run_python_code", &python(code));
        assert_eq!(answer["status"], "run-error", "{code}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(wanted), "{code}: {answer}");
    }
    let endless = answer("--timeout 2", "run_python_code", &python("while True: pass"));
    assert_eq!(endless["status"], "run-error", "{endless}");
    assert!(endless["error"].as_str().unwrap().contains("Limit reached: time"), "{endless}");
}

fn exits_of_native_calls_have_a_status_or_a_text() {
    for (exit, wanted) in
        [("", None), ("0", None), ("False", None), ("259", Some("SystemExit: 3")), ("-1", Some("255"))]
    {
        let answer = answer("", "run_python_code", &python(&format!("import sys; sys.exit({exit})")));
        let status = if wanted.is_some() { "run-error" } else { "success" };
        assert_eq!(answer["status"], status, "{exit}: {answer}");
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(wanted.unwrap_or_default()), "{exit}: {answer}");
    }
    // A text is not a status, even if it reads like one.
    let answer = answer("", "run_python_code", &python("import sys; sys.exit('0')"));
    assert_eq!(answer["status"], "run-error", "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("SystemExit: 0"), "{answer}");
}

fn exception_that_reads_like_a_time_limit_is_an_exception() {
    let answer = answer("", "run_python_code", &python("raise TimeoutError('the cell ran longer')"));
    assert_eq!(answer["status"], "run-error", "{answer}");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("TimeoutError: the cell ran longer") && !error.contains("Limit reached"), "{answer}");
}

fn memory_limit_of_a_native_call_is_reported_as_that() {
    // One process would get a `MemoryError`; together they exceed the session's memory and are killed.
    let code = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(b'x') * 150_000_000\n        \
                time.sleep(60)\n        os._exit(0)\ntime.sleep(60)";
    let answer = answer("--memory 600MB --timeout 50", "run_python_code", &python(code));
    assert_eq!(answer["status"], "run-error", "{answer}");
    assert!(answer["error"].as_str().unwrap().starts_with("Limit reached: memory. The code used more"), "{answer}");
}

fn packages_of_native_kernels_follow_the_policy() {
    let arguments = json!({ "python_code": "import cowsay; cowsay.__name__", "dependencies": ["cowsay"] });
    let installed = answer("", "run_python_code", &arguments);
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
        let refused = answer(options, "run_python_code", &arguments);
        assert_eq!(refused["status"], "install-error", "{options}: {refused}");
        assert!(refused["error"].as_str().unwrap().contains(wanted), "{options}: {refused}");
    }
    let pip = json!({ "code": "%pip install cowsay" });
    let session = answer("--offline --toolset interpreter", "execute_code", &pip);
    assert!(session.to_string().contains("cannot be installed in this session"), "{session}");
}

fn native_calls_and_sessions_have_their_own_limits() {
    let options = "--toolset all --memory 500MB --session-memory 1500MB --max-output 1MB";
    let large = "x = bytearray(1000 << 20)\nlen(x) >> 20";
    let call = answer(options, "run_python_code", &python(large));
    assert!(call["status"] == "run-error" && call["error"].as_str().unwrap().contains("MemoryError"), "{call}");
    let session = answer(options, "execute_code", &json!({ "code": large }));
    assert_eq!((&session["success"], &session["result"]), (&json!(true), &json!("1000")), "{session}");

    let much = "print('x' * (3 << 20))";
    let call = answer(options, "run_python_code", &python(much));
    assert!(call["error"].as_str().unwrap().contains("Limit reached: output"), "{}", call["error"]);
    let session = answer(options, "execute_code", &json!({ "code": much }));
    assert_eq!(session["success"], true, "{}", session["error"]);
}

fn native_server_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = ["stdio", "--sandbox", "native", "--toolset", "interpreter", "--native-dir"];
    let belljar = Belljar::without_cache().args(server).arg(&*ENVIRONMENTS).env("TMPDIR", folder.path());
    let mut command = belljar.into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let cell = json!({ "code": "open('secret.txt', 'w').write('x'); 6 * 7" });
    let answer = text(&wire.tool("execute_code", cell));
    assert!(answer.contains("42"), "{answer}");
    let names = names_in(folder.path());
    assert!(names.iter().any(|name| name.starts_with("belljar-")), "{names:?}");
    // The server imports modules for later sessions, which takes longer than the first cell. The assertions hold at any
    // moment.
    wire.end_input();
    assert!(wire.wait_for_exit().success());
    assert_eq!(names_in(folder.path()), [""; 0]);
}

fn native_call_installs_declared_or_imported_packages() {
    let block = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\"cowsay<7\", \"tomli; python_version < '3.1'\"]\n# ///\n\
                 import cowsay; cowsay.__name__";
    let declared = answer("", "run_python_code", &python(block));
    assert_eq!((&declared["status"], &declared["return_value"]), (&json!("success"), &json!("cowsay")), "{declared}");
    assert_eq!(declared["dependencies"], json!(["cowsay", "tomli"]), "{declared}");

    // A package of the environment is not installed. An unknown module is an error only when it is imported.
    let imports = "import numpy, cowsay\ntry:\n    import belljar_no_such_module\nexcept ImportError as error:\n    print(error.name)\ncowsay.__name__";
    let imported = answer("", "run_python_code", &python(imports));
    assert_eq!((&imported["status"], &imported["return_value"]), (&json!("success"), &json!("cowsay")), "{imported}");
    assert_eq!(
        (&imported["dependencies"], &imported["output"]),
        (&json!(["cowsay"]), &json!(["belljar_no_such_module"]))
    );

    let unknown = answer("", "run_python_code", &python("import cowsay, belljar_no_such_module"));
    let error = unknown["error"].as_str().unwrap();
    assert_eq!(unknown["status"], "run-error", "{unknown}");
    assert!(error.contains("belljar_no_such_module cannot be installed: "), "{error}");

    let old = "# /// script\n# requires-python = \"<3\"\n# ///\n1";
    let refused = answer("", "run_python_code", &python(old));
    assert_eq!(refused["status"], "install-error", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("requires Python <3"), "{refused}");
}

fn asyncio_programs_run_in_native_calls() {
    let code = "import asyncio\nasync def main():\n    return sum(await asyncio.gather(*[asyncio.sleep(0, n) for n in range(4)]))\nasyncio.run(main())";
    let answer = answer("", "run_python_code", &python(code));
    assert_eq!((&answer["status"], &answer["return_value"]), (&json!("success"), &json!(6)), "{answer}");
    assert_eq!(answer["output"], json!([]), "{answer}");
}

fn native_calls_install_optional_dependencies_of_pandas() {
    let table = "import pandas as pd\ntable = pd.DataFrame({'a': [x], 'b': ['y']})\n";
    let arguments =
        json!({ "python_code": format!("{table}table.to_markdown(index=False)"), "global_variables": { "x": 7 } });
    let markdown = answer("", "run_python_code", &arguments);
    assert_eq!(markdown["status"], "success", "{markdown}");
    assert!(markdown["return_value"].as_str().unwrap().starts_with("|   a | b   |"), "{markdown}");
    assert_eq!(markdown["dependencies"], json!(["tabulate"]), "{markdown}");

    let table = "import pandas as pd\ntable = pd.DataFrame({'a': [1]})\n";
    for effect in ["print('begun')", "open('log', 'w').close()"] {
        let failed = answer("", "run_python_code", &python(&format!("{table}{effect}\ntable.to_markdown()")));
        let error = failed["error"].as_str().unwrap();
        assert!(error.contains("hint: add `import tabulate` at the top of the code"), "{error}");
    }
    let denied = answer("--deny-packages tabulate", "run_python_code", &python(&format!("{table}table.to_markdown()")));
    assert!(denied["error"].as_str().unwrap().contains("tabulate cannot be installed: "), "{denied}");
    let cell = json!({ "code": format!("{table}table.to_markdown()") });
    let hinted = answer("--toolset interpreter", "execute_code", &cell);
    assert!(hinted.to_string().contains("hint: `%pip install tabulate` installs it"), "{hinted}");
}

fn native_session_installs_imports() {
    let cell = json!({ "code": "import cowsay\ncowsay.__name__" });
    let installed = answer("--toolset interpreter", "execute_code", &cell);
    assert_eq!((&installed["success"], &installed["result"]), (&json!(true), &json!("'cowsay'")), "{installed}");
    assert!(installed["output"].to_string().contains("[installed cowsay "), "{installed}");
    let refused = answer("--toolset interpreter --no-install", "execute_code", &cell);
    assert!(
        refused.to_string().contains("cowsay is not installed, and this session installs no packages"),
        "{refused}"
    );
    let denied = answer("--toolset interpreter --deny-packages cowsay", "execute_code", &cell);
    assert!(denied.to_string().contains("cowsay cannot be installed: "), "{denied}");
}

fn native_installations_are_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = ["stdio", "--sandbox", "native", "--toolset", "all", "--native-dir"];
    let belljar = Belljar::without_cache().args(server).arg(&*ENVIRONMENTS).arg("--audit").arg(&log);
    let mut wire = Wire::spawn(belljar.into_command());
    wire.initialize();
    let called = wire.call(json!({ "python_code": "import cowsay", "dependencies": ["cowsay"] }));
    assert_ne!(called["isError"], true, "{called}");
    let cell = wire.tool("execute_code", json!({ "code": "%pip install iniconfig==2.1.0" }));
    assert_ne!(cell["isError"], true, "{cell}");
    wire.end_input();
    assert!(wire.wait_for_exit().success());
    let text = std::fs::read_to_string(&log).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let installs: Vec<Value> = records.filter(|record| record["event"] == "install").collect();
    assert_eq!(installs.len(), 2, "{text}");
    assert!(installs[0]["name"].as_str().unwrap().starts_with("cowsay "), "{text}");
    assert_eq!(installs[1]["name"], "iniconfig 2.1.0");
    assert!(installs[1]["session"].is_string() && installs[0]["session"].is_null(), "{text}");
}

fn native_servers_offer_tools_that_work() {
    let server = ["stdio", "--sandbox", "native", "--toolset", "interpreter", "--native-dir"];
    let mut wire = Wire::spawn(Belljar::without_cache().args(server).arg(&*ENVIRONMENTS).into_command());
    wire.initialize();
    let listed = wire.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let expected =
        ["execute_code", "list_session_files", "clear_session", "upload_file", "interrupt_session", "restart_session"];
    assert_eq!(names, expected);
}

fn weak_kernels_of_root_need_a_reachable_environment() {
    let private = tempfile::tempdir().unwrap();
    std::fs::set_permissions(private.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let venv = private.path().join("venv");
    let current = std::fs::read_to_string(ENVIRONMENTS.join("environment.json")).unwrap();
    let current: Value = serde_json::from_str(&current).unwrap();
    std::os::unix::fs::symlink(current["directory"].as_str().unwrap(), &venv).unwrap();
    let server = ["stdio", "--sandbox", "native-weak", "--venv"];
    let run = Belljar::without_cache().args(server).arg(&venv).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    let directory = private.path().to_str().unwrap();
    for wanted in ["cannot run weak kernels", directory, "belljar native setup --native-dir"] {
        assert!(run.stderr.contains(wanted), "{wanted}: {run:?}");
    }
}

fn native_session_returns_figures_and_files() {
    let code = "import pandas as pd, matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()\n\
                open('table.csv', 'w').write('a\\n1\\n')\npd.read_csv('table.csv')";
    let answer = answer("--toolset interpreter", "execute_code", &json!({ "code": code }));
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["result"], "   a\n0  1", "{answer}");
    let mut names: Vec<&str> =
        answer["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["inline_1_1.png", "table.csv"], "{answer}");
}

fn unsupported_options_are_refused_at_the_start() {
    let empty = tempfile::tempdir().unwrap();
    let start = |options: &[&str]| Belljar::without_cache().arg("stdio").args(options).run();
    let none = start(&["--sandbox", "native", "--native-dir", empty.path().to_str().unwrap()]);
    assert!(none.status == Some(2) && none.stderr.contains("belljar native setup"), "{none:?}");
    let missing = start(&["--sandbox", "native", "--venv", "/nonexistent"]);
    assert!(missing.status == Some(2) && missing.stderr.contains("/nonexistent"), "{missing:?}");
    let deps = start(&["--sandbox", "native", "--native-dir", ENVIRONMENTS.to_str().unwrap(), "--deps", "rich"]);
    assert!(deps.status == Some(2) && deps.stderr.contains("--deps applies to --sandbox wasm only"), "{deps:?}");
    let stray = start(&["--venv", "/nonexistent"]);
    assert!(stray.status == Some(2) && stray.stderr.contains("--venv applies to native kernels only"), "{stray:?}");
    let directory = ENVIRONMENTS.to_str().unwrap();
    let data = ["--toolset", "interpreter", "--sandbox", "native", "--native-dir", directory, "--data-dir", "/tmp/x"];
    let kept = start(&data);
    assert!(kept.status == Some(2) && kept.stderr.contains("--data-dir"), "{kept:?}");
}

fn pipelined_cells_of_a_native_session_run_in_order() {
    let mut command = Belljar::without_cache()
        .args(["stdio", "--toolset", "interpreter", "--sandbox", "native", "--no-install", "--native-dir"])
        .arg(&*ENVIRONMENTS)
        .into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let opened = text(&wire.tool("execute_code", json!({ "code": "order = []" })));
    let opened: Value = serde_json::from_str(&opened).unwrap();
    let id = &opened["session_info"]["session_id"];
    let send = |wire: &mut Wire, name: &str, arguments: Value| {
        wire.send("tools/call", json!({ "name": name, "arguments": arguments }))
    };
    for round in 0..PIPELINED_ROUNDS {
        // The interrupt follows the endless cell, and must not reach the cells behind it.
        let endless = send(&mut wire, "execute_code", json!({ "session_id": id, "code": "while True: pass" }));
        let interrupt = send(&mut wire, "interrupt_session", json!({ "session_id": id }));
        let cell = |number: usize| json!({ "session_id": id, "code": format!("order.append({number})") });
        let numbers = round * CELLS_PER_ROUND..(round + 1) * CELLS_PER_ROUND;
        let cells: Vec<u64> = numbers.map(|number| send(&mut wire, "execute_code", cell(number))).collect();
        assert!(text(&wire.answer(interrupt)["result"]).contains("was interrupted"));
        assert!(text(&wire.answer(endless)["result"]).contains("KeyboardInterrupt"));
        for cell in cells {
            let answer = text(&wire.answer(cell)["result"]);
            assert!(answer.contains("\"success\":true"), "{answer}");
        }
    }
    let code = format!("order == list(range({}))", PIPELINED_ROUNDS * CELLS_PER_ROUND);
    let last = text(&wire.tool("execute_code", json!({ "session_id": id, "code": code })));
    assert!(last.contains("\"result\":\"True\""), "{last}");
}
