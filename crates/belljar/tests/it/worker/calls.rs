//! Calls of tools, and values of callers, by code in worker processes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::start;
use crate::serve::http::Listening;
use crate::tool_client::tool_server;
use crate::wheels::Wheels;
use crate::wire::{Wire, text};

const REPORT: &str = "io.github.belljar/report";
/// Programs that call tools, each with another kind of call.
const PROGRAMS: [&str; 13] = [
    "from tools import t\nawait t.add(a=40, b=2)",
    "from tools import t\nt.add(a=40, b=2).result()",
    "from tools import t\nimport asyncio\nsum(await asyncio.gather(*(t.add(a=n) for n in range(50))))",
    "from tools import t\n[await t.add(a=n) for n in range(20)]",
    "from tools import t\nimport asyncio\nawait asyncio.gather(*(t.meet(count=5) for _ in range(5)))",
    "from tools import t\nimport asyncio\nawait asyncio.wait_for(t.hang(), 0.2)",
    "from tools import t\nlen(await t.large(size=1_000_000)), len(await t.echo(value='x' * 1_000_000))",
    "from tools import t\nfile = (await t.picture())[1]\nfile, bytes(file)",
    "from tools import t\nt.picture().result()[1].mime_type",
    "from tools import t\nawait t.missing()",
    "from tools import t\nawait t.add(a='one')",
    "from tools import t\nawait t.fail(message='broken')",
    "import tools\nsorted(dir(tools.t)), tools.search('add')",
];

/// Starts a server with tools that reply within `timeout` seconds, whose code runs in worker processes, or in threads.
fn start_with_tools(isolation: &str, timeout: &str) -> Wire {
    let server = tool_server("t", "plain");
    Wire::start(["--no-install", "--approve", "none", "--tool-timeout", timeout, &server, "--isolation", isolation])
}

/// Returns the text of a result without what differs between two calls: the times in the log of calls.
fn without_times(answer: &Value) -> String {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let text = text(answer);
    let words = text.split_inclusive([' ', '\n']);
    words.filter(|word| !(word.contains("ms") && word.starts_with(is_digit))).collect()
}

#[test]
fn calls_of_tools_are_the_same_with_and_without_processes() {
    let (mut process, mut thread) = (start_with_tools("process", "120"), start_with_tools("thread", "120"));
    for code in PROGRAMS {
        let call = |wire: &mut Wire| without_times(&wire.call(json!({ "python_code": code })));
        assert_eq!(call(&mut process), call(&mut thread), "{code}");
    }
    let sum = process.run(PROGRAMS[2]);
    assert!(sum.contains("1275"), "{sum}");
}

#[test]
fn time_of_a_tool_is_not_that_of_the_code() {
    let mut wire = start_with_tools("process", "8");
    // Awaited, and held.
    for call in ["await t.hang()", "t.hang().result()"] {
        let begin = Instant::now();
        let code = format!(
            "from tools import t\ntry:\n    {call}\nexcept Exception as error:\n    print(type(error).__name__)\n'after'"
        );
        let answer = text(&wire.call(json!({ "python_code": code, "timeout": 6 })));
        assert!(answer.contains("ToolTimeout") && answer.contains("after"), "{call}: {answer}");
        assert!(begin.elapsed() >= Duration::from_secs(8), "{call}");
    }
}

#[test]
fn code_that_waits_for_a_tool_is_cancelled_with_its_call() {
    let mut wire = start_with_tools("process", "600");
    wire.follow_output();
    for call in ["await t.hang()", "t.hang().result()"] {
        let id = wire.send_call(json!({ "python_code": format!("from tools import t\nprint('begun')\n{call}") }));
        wire.wait_for_output("begun");
        // The call follows.
        std::thread::sleep(Duration::from_millis(800));
        wire.notify("notifications/cancelled", json!({ "requestId": id, "reason": "test" }));
        let begin = Instant::now();
        assert!(wire.run("from tools import t\nawait t.add(a=1)").contains('2'));
        assert!(begin.elapsed() < Duration::from_secs(120), "{call}: {:?}", begin.elapsed());
    }
}

/// Runs code for a caller that wants a report, with variables and their buffers. Returns the report's value.
fn reported(wire: &mut Wire, code: &str, variables: Option<(String, Value)>) -> Value {
    let mut request = json!({});
    if let Some((variables, buffers)) = variables {
        request = json!({ "variables": variables, "buffers": buffers });
    }
    let call = json!({ "name": "run_python_code", "arguments": { "python_code": code }, "_meta": { REPORT: request } });
    let answer = wire.ask("tools/call", call);
    let value = answer["result"]["_meta"][REPORT]["value"].clone();
    assert!(value["json"].is_string(), "{code}: {answer:#}");
    value
}

#[test]
fn values_cross_with_their_buffers() {
    let (mut process, mut thread) = (start(&[]), Wire::start(["--no-install", "--isolation", "thread"]));
    for code in [
        "bytes(range(256)) * 5000",
        "{'a': b'one' * 1000, 'b': [bytearray(3000), {1, 2}, 2j]}",
        "import datetime\n(datetime.date(2026, 1, 2), 1 << 200, float('nan'))",
        "[bytes([n]) * 2000 for n in range(100)]",
        "b''",
    ] {
        let value = reported(&mut process, code, None);
        assert_eq!(value, reported(&mut thread, code, None), "{code}");
        // The value is a variable of the next program.
        let variables = format!("{{\"given\": {}}}", value["json"].as_str().unwrap());
        let buffers = value.get("buffers").cloned().unwrap_or_else(|| json!([]));
        let back = reported(&mut process, "given", Some((variables, buffers)));
        assert_eq!(back, value, "{code}");
    }
    let large = reported(&mut process, "bytes(900_000)", None);
    let buffer = large["buffers"][0].as_str().unwrap_or_default();
    assert!(buffer.len() > 1_000_000, "{} of {}", buffer.len(), large["json"]);
}

/// Returns wheels of packages that install nothing else but what they name.
fn installable() -> Wheels {
    Wheels::new()
        .with("alpha", "1.0", &[("alpha.py", "version = 1")])
        .with("alpha", "2.0", &[("alpha.py", "version = 2")])
        .with("beta", "1.0", &[("beta.py", "name = 'beta'")])
        .with_requirements("gamma", &["beta"], &[("gamma.py", "import beta")])
}

#[test]
fn lines_of_pip_install_as_without_processes() {
    let wheels = installable();
    let programs = [
        "%pip install gamma\n__import__('gamma').beta.name",
        "!pip install gamma beta\n%pip install -q alpha\n__import__('alpha').version",
        "if True:\n    %pip install 'alpha<2'\n__import__('alpha').version",
        "%pip install gamma\n%pip install gamma\n!pip list",
        "!pip install no-such-package\n'goes on'",
        "%pip install no-such-package",
        "%pip install alpha==9\n1",
        "%pip install --target x alpha",
        "text = '''\n%pip install alpha\n'''\ntext",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'alpha<2'])\n\
         __import__('alpha').version",
        "import os\nos.system('pip install gamma no-such-package')",
        "import micropip\nawait micropip.install(['alpha<2', 'gamma'])\n__import__('alpha').version",
    ];
    let start = |isolation: &str| {
        let options = ["--find-links", wheels.path(), "--offline", "--toolset", "all", "--isolation", isolation];
        Wire::start(options)
    };
    let (mut process, mut thread) = (start("process"), start("thread"));
    for code in programs {
        assert_eq!(process.run(code), thread.run(code), "{code}");
        let cell = |wire: &mut Wire| {
            let answer = wire.tool("execute_code", json!({ "code": code }));
            let fields: Value = serde_json::from_str(&text(&answer)).unwrap();
            ["success", "output", "result", "error"].map(|field| fields[field].clone())
        };
        assert_eq!(cell(&mut process), cell(&mut thread), "{code}");
    }
}

#[test]
fn running_code_installs_packages_of_python_alone() {
    let wheels = installable();
    let options = ["--find-links", wheels.path(), "--offline", "--toolset", "all", "--isolation", "process"];
    let mut wire = Wire::start(options);
    let ways = [
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'gam' + 'ma'], check=True)",
        "import micropip\nawait micropip.install('gam' + 'ma')",
        "import os\nassert os.system('pip install gam' + 'ma > /dev/null 2>&1') == 0",
        "open('r.txt', 'w').write('gamma==1.0\\n')\n%pip install -r r.txt",
    ];
    for way in ways {
        let code = format!("{way}\n__import__('gamma').beta.name, __import__('beta').__file__");
        let answer = wire.run(&code);
        assert!(answer.contains("beta") && answer.contains("site-packages/beta.py"), "{answer}");
        // The session has them in the next cell, and in another worker.
        let cell = |wire: &mut Wire, id: &str, code: &str| -> Value {
            let answer = wire.tool("execute_code", json!({ "code": code, "session_id": id }));
            serde_json::from_str(&text(&answer)).unwrap()
        };
        let opened = cell(&mut wire, "", &code);
        assert_eq!(opened["success"], true, "{opened:#}");
        let id = opened["session_info"]["session_id"].as_str().unwrap();
        assert_eq!(cell(&mut wire, id, "import gamma\ngamma.beta.name")["result"], "'beta'");
        let forked = text(&wire.tool("fork_session", json!({ "session_id": id })));
        let fork: Value = serde_json::from_str(&forked).unwrap();
        let fork = fork["session_id"].as_str().unwrap();
        assert_eq!(
            cell(&mut wire, fork, "import alpha, gamma\nalpha.version, gamma.beta.name")["result"],
            "(2, 'beta')"
        );
    }
}

#[test]
fn compiled_packages_of_commands_are_there_before_the_code_runs() {
    let mut wire = Wire::start(["--toolset", "all", "--isolation", "process"]);
    let commands = [
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'jiter'], check=True)",
        "import os\nassert os.system('pip install -q jiter') == 0",
        "import micropip\nawait micropip.install('jiter')",
    ];
    for command in commands {
        let code = format!("{command}\n__import__('jiter').from_json(b'41') + 1");
        let answer = wire.run(&code);
        assert!(answer.contains("42"), "{answer}");
        let answer = text(&wire.tool("execute_code", json!({ "code": code })));
        let cell: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(cell["result"], "42", "{cell:#}");
    }
}

#[test]
fn packages_that_a_worker_cannot_get_are_refused_with_what_to_do() {
    let wheels = installable();
    let mut wire = Wire::start(["--find-links", wheels.path(), "--offline", "--isolation", "process"]);
    let code =
        "import alpha, subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'al' + 'pha<2'])";
    let answer = wire.run(code);
    assert!(answer.contains("while code runs in a worker process"), "{answer}");
    assert!(answer.contains("hint: install them with `%pip install NAME` on a line of its own"), "{answer}");
}

in_both_isolations! { cell_that_sleeps_has_the_packages_that_it_has_installed }

fn cell_that_sleeps_has_the_packages_that_it_has_installed(isolation: &str) {
    let (wheels, data) = (installable(), tempfile::tempdir().unwrap());
    let options = ["--find-links", wheels.path(), "--offline", "--toolset", "interpreter", "--sleep-after", "0.2"];
    let options = options.into_iter().chain(["--data-dir", data.path().to_str().unwrap(), "--isolation", isolation]);
    let server = Listening::start("streamable-http-stateless", options);
    let code = "%pip install -q gamma\nimport asyncio\nawait asyncio.sleep(4)\n__import__('gamma').beta.name";
    std::thread::scope(|scope| {
        let call = scope.spawn(|| server.tool("execute_code", &json!({ "code": code })));
        server.wait_for_sleep(1);
        let answer: Value = serde_json::from_str(&text(&call.join().unwrap())).unwrap();
        assert_eq!(answer["result"], "'beta'", "{answer:#}");
    });
}
