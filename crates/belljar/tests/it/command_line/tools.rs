//! Tools of MCP servers in `belljar run`, and `belljar tools`.

use std::path::Path;

use crate::harness::{Belljar, Run};
use crate::tool_client::tool_server as server;
use crate::tool_servers::{ToolServer, registry_servers};

fn run_with(options: &[&str], code: &str) -> Run {
    let server = server("t", "plain");
    Belljar::run_with([&[server.as_str()], options, &["-c", code]].concat())
}

/// Runs code that needs no approval, and returns its output.
fn output(code: &str) -> String {
    let run = run_with(&["--approve", "none"], code);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{code}");
    run.stdout
}

#[test]
fn tools_are_functions() {
    assert_eq!(output("from tools import t\nprint(await t.add(a=2, b=3))"), "5\n");
    assert_eq!(output("from tools.t import add\nimport tools\nprint(add(a=2).result(), tools.servers())"), "3 ['t']\n");
    assert_eq!(
        output("import tools\nprint(await tools.call('t', 'from-to', {'from': 'x', 'to-place': 'y'}))"),
        "['from-to', {'from': 'x', 'to-place': 'y'}]\n"
    );
    assert_eq!(
        output("from tools import t\nprint(await t.from_to(from_='x', to_place='y'))"),
        "['from-to', {'from': 'x', 'to-place': 'y'}]\n"
    );
    assert_eq!(
        output("from tools import t\nprint(await t.echo(value={'$int': [1, None, 'é']}))"),
        "{'value': {'$int': [1, None, 'é']}}\n"
    );
}

#[test]
fn server_whose_name_begins_with_a_digit_is_a_module() {
    let server = server("1password", "plain");
    let code = "import tools\nfrom tools import _1password\nfrom tools._1password import add\n\
                print(tools.servers(), await _1password.add(a=1), await add(a=2), hasattr(tools, '_repr_html_'))";
    let run = Belljar::run_with([server.as_str(), "--approve", "none", "-c", code]);
    assert_eq!((run.stdout.as_str(), run.status), ("['_1password'] 2 3 False\n", Some(0)), "{}", run.stderr);
}

#[test]
fn calls_run_side_by_side() {
    // The server responds once all have arrived.
    let gather =
        "import asyncio\nfrom tools import t\nprint(await asyncio.gather(*(t.meet(count=5) for _ in range(5))))";
    assert_eq!(output(gather), "['met', 'met', 'met', 'met', 'met']\n");
    let group = "import asyncio\nfrom tools import t\nasync with asyncio.TaskGroup() as group:\n    \
                 tasks = [group.create_task(t.meet(count=2)) for _ in range(2)]\nprint([task.result() for task in tasks])";
    assert_eq!(output(group), "['met', 'met']\n");
}

/// Calls that are gathered have no tasks, and behave like those of coroutines, which have.
#[test]
fn gathered_calls_behave_like_coroutines() {
    let program = "
import asyncio
from tools import t, ToolError

WRAPPED

print(await asyncio.gather(*(add(n) for n in range(200))) == [n + 1 for n in range(200)])
print(await asyncio.gather(t.picture(), add(1), t.echo(value={'$int': [1]}), t.link()))
print(await asyncio.gather(fail('a'), add(1), return_exceptions=True))
try:
    await asyncio.gather(add(1), fail('b'), t.hang())
except ToolError as error:
    print(repr(error), error.server, error.tool)
for ending in (asyncio.wait_for(asyncio.gather(hang(), hang()), 0.2), cancelled(asyncio.gather(hang(), add(1)))):
    try:
        await ending
    except (TimeoutError, asyncio.CancelledError) as error:
        print(type(error).__name__)
group = asyncio.gather(add(1), add(2))
again = asyncio.gather(group, add(3))
print(await again, await group, group.done())
same = add(4)
print(await asyncio.gather(same, same, asyncio.sleep(0, 'slept')))
try:
    await asyncio.gather(same, same, add(5))
except RuntimeError as error:
    print(error)
";
    let helpers = "async def cancelled(gathering):\n    await asyncio.sleep(0.2)\n    gathering.cancel()\n    \
                   await gathering\n";
    let calls = "add, fail, hang = lambda n: t.add(a=n), lambda text: t.fail(message=text), lambda: t.hang()";
    let coroutines = "async def add(n):\n    return await t.add(a=n)\nasync def fail(text):\n    \
                      return await t.fail(message=text)\nasync def hang():\n    return await t.hang()";
    let outcomes = [calls, coroutines].map(|functions| {
        let code = program.replace("WRAPPED", &format!("{helpers}{functions}"));
        let run = run_with(&["--approve", "none", "--max-tool-calls", "300"], &code);
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{code}");
        run.stdout
    });
    let shown = "True\n[['a picture', <File of 24 bytes, image/png>], 2, {'value': {'$int': [1]}}, \
                 <Resource 'test://note' of t>]\n[ToolError('a'), 2]\nToolError('b') t fail\nTimeoutError\n\
                 CancelledError\n[[2, 3], 4] [2, 3] True\n[5, 5, 'slept']\n";
    // A call that has ended can be awaited again, which a coroutine cannot.
    assert_eq!(outcomes[0], shown);
    assert_eq!(outcomes[1], format!("{shown}cannot reuse already awaited coroutine\n"));
}

#[test]
fn cancelled_calls_are_cancelled_on_the_host() {
    let code = "
import asyncio
from tools import t
async def end(awaitable):
    try:
        await asyncio.wait_for(awaitable, 1)
    except TimeoutError:
        pass
await end(t.hang())
await end(asyncio.gather(t.hang(), t.hang()))
task = asyncio.create_task(t.hang())
await asyncio.sleep(1)
task.cancel()
early = asyncio.create_task(t.hang()), asyncio.gather(t.hang(), t.hang())
for each in early:
    each.cancel()
print([type(each).__name__ for each in await asyncio.gather(task, *early, return_exceptions=True)])";
    let run = run_with(&["--json"], code);
    let outcome: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(outcome["output"], "['CancelledError', 'CancelledError', 'CancelledError']\n", "{outcome}");
    // Those that were cancelled at once were not sent.
    let statuses: Vec<_> = outcome["calls"].as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert_eq!(statuses, ["cancelled"; 4], "{outcome}");
}

#[test]
fn binary_results_and_resources_are_objects() {
    let code = "from tools import t\nparts = await t.picture()\nprint(parts, parts[1][:4], parts[1].mime_type)\n\
                link = await t.link()\nprint(link, await link.read())\n\
                print([r.uri for r in await t.resources.list()], await t.resources.read('test://note'))";
    let expected = "['a picture', <File of 24 bytes, image/png>] b'\\x89PNG' image/png\n\
                    <Resource 'test://note' of t> contents of test://note\n\
                    ['test://note'] contents of test://note\n";
    assert_eq!(output(code), expected);
}

#[test]
fn help_shows_signature_and_description() {
    let help = output("from tools import t\nhelp(t.add)");
    assert!(help.contains("async add(*, a: int, b: int = 1) -> int\n    Adds.\n"), "{help}");
    let names = output("from tools import t\nprint('add' in dir(t), hasattr(t, 'nothing'))");
    assert_eq!(names, "True False\n");
    let found = output("import tools\nprint(tools.search('adds', 1), await tools.describe('t.add'))");
    assert!(
        found.starts_with("t.add(*, a: int, b: int = 1) -> int  # Adds.\n # from tools import t\nasync def add("),
        "{found}"
    );
}

#[test]
fn failures_are_exceptions() {
    let code = "import tools\nfrom tools import t, ToolError\ntry:\n    await t.fail(message='no such city')\n\
                except ToolError as error:\n    print(error, error.server, error.tool, isinstance(error, tools.ToolException))\n\
                try:\n    t.add(a='x').result()\nexcept ToolError as error:\n    print(error)\n\
                try:\n    await t.add(1)\nexcept TypeError as error:\n    print(error)\n\
                try:\n    await t.echo(value=object())\nexcept ToolError as error:\n    print(error)";
    let expected = "no such city t fail True\n\
                    invalid arguments of t.add: a: \"x\" is not of type \"integer\"\nadd(*, a: int, b: int = 1) -> int\n\
                    t.add() takes keyword arguments only: add(*, a: int, b: int = 1) -> int\n\
                    the arguments of t.echo cannot be sent: object is not a type of JSON\n";
    assert_eq!(output(code), expected);
    let run = run_with(&[], "from tools import t\n\nawait t.fail(message='boom')");
    assert_eq!(run.status, Some(1));
    let expected = "Traceback (most recent call last):\n  File \"main.py\", line 3, in <module>\n    \
                    await t.fail(message='boom')\ntools.ToolError: boom\n";
    assert_eq!(run.stderr, expected);
}

#[test]
fn value_of_a_call_that_is_not_awaited_is_an_error_there() {
    let message = "the call of t.add has no value yet: write `await t.add(...)`";
    for (line, code) in [(2, "print(t.add(a=1))"), (3, "call = t.add(a=1)\nprint(call + 1)"), (2, "t.add(a=1)['x']")] {
        let run = run_with(&[], &format!("from tools import t\n{code}"));
        assert_eq!(run.status, Some(1), "{code}");
        assert!(run.stderr.contains(&format!("line {line}, in <module>")), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("NotAwaitedError: {message}")), "{}", run.stderr);
    }
    let value = run_with(&[], "from tools import t\nt.add(a=1)");
    assert!(value.stderr.contains(message), "{}", value.stderr);
}

#[test]
fn call_that_is_never_awaited_is_reported() {
    let run = run_with(&[], "from tools import t\nfor _ in range(2):\n    t.add(a=1)\nkept = t.add(a=2)\nprint('end')");
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "end\n"));
    let warning = |line| format!("main.py:{line}: RuntimeWarning: the call of t.add was never awaited\n");
    assert_eq!(run.stderr, [warning(3), warning(3), warning(4)].concat());
}

#[test]
fn call_that_needs_approval_is_denied_without_a_terminal() {
    let run = run_with(
        &[],
        "from tools import t, ToolDenied\ntry:\n    await t.note(text='x')\nexcept ToolDenied as e:\n    print(e)",
    );
    assert!(run.stdout.starts_with("the call of `t.note` needs approval: there is no terminal to ask on."), "{run:?}");
    assert!(run.stdout.contains("`--approve none`"), "{run:?}");
}

#[cfg(unix)]
#[test]
fn terminal_is_asked_for_approval() {
    let code = "from tools import t, ToolDenied\nfor text in 'abcd':\n    try:\n        print(await t.note(text=text))\n    \
                except ToolDenied as error:\n        print(error)";
    let mut command = Belljar::new().args(["run", "-q", &server("t", "plain"), "-c", code]).into_command();
    command.env("TERM", "xterm");
    let mut session = rexpect::session::spawn_command(command, Some(180_000)).unwrap();
    for (answer, expected) in [("y", "noted a"), ("no", "the user denied the call of `t.note`"), ("a", "noted c")] {
        session.exp_string("The code calls the tool note of the server t.").unwrap();
        session.exp_string("main.py:4: print(await t.note(text=text))").unwrap();
        session.exp_string("[n]o: ").unwrap();
        session.send_line(answer).unwrap();
        session.exp_string(expected).unwrap();
    }
    // All calls of this tool are allowed now.
    session.exp_string("noted d").unwrap();
    session.exp_eof().unwrap();
}

#[test]
fn time_limit_does_not_run_while_code_waits() {
    let code =
        "from tools import t, ToolTimeout\ntry:\n    await t.hang()\nexcept ToolTimeout as error:\n    print(error)";
    let run = run_with(&["--timeout", "10", "--tool-timeout", "12"], code);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "t.hang did not respond within 12 s\n"), "{run:?}");
}

#[test]
fn json_outcome_lists_the_calls() {
    let run = run_with(&["--json"], "from tools import t\nawait t.add(a=2)");
    let outcome: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(outcome["value"], 3);
    let call = &outcome["calls"][0];
    assert_eq!((call["tool"].as_str(), call["status"].as_str()), (Some("add"), Some("ok")), "{outcome}");
    let plain: serde_json::Value = serde_json::from_str(&Belljar::run_with(["--json", "-c", "1"]).stdout).unwrap();
    assert!(plain.get("calls").is_none(), "{plain}");
}

#[test]
fn module_does_not_exist_without_servers() {
    let run = Belljar::run_with(["--no-install", "-c", "import tools"]);
    assert!(run.stderr.contains("ModuleNotFoundError: No module named 'tools'"), "{}", run.stderr);
    let server = server("t", "plain");
    let run = Belljar::run_with([&server, "-c", "from tools import u"]);
    assert!(run.stderr.contains("ImportError: cannot import name 'u' from 'tools'"), "{}", run.stderr);
}

#[test]
fn code_that_has_called_a_tool_is_not_run_again() {
    // Its package is installed, but the call must not be repeated.
    let late = "from tools import t\nimport importlib\nawait t.add(a=1)\nimportlib.import_module('inflection')";
    let run = run_with(&["--json"], late);
    let outcome: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(outcome["calls"].as_array().unwrap().len(), 1, "{outcome}");
    assert_eq!(outcome["error"]["type"], "ModuleNotFoundError", "{outcome}");
    // Looking tools up is not a call.
    let early = "from tools import t\nimport importlib\nt.add\nimportlib.import_module('inflection').pluralize('day')";
    let run = run_with(&["--json"], early);
    let outcome: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(outcome["value"], "days", "{outcome}");
}

/// Writes a file of servers, and returns the names of the tools of `t` that code gets with it.
fn tools_of_file(name: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let run = Belljar::without_cache().args(["tools", "search", "--servers"]).arg(&path).arg("adds").run();
    assert_eq!(run.status, Some(0), "{name}: {run:?}");
    run.stdout
}

#[test]
fn files_of_servers_have_the_formats_of_known_programs() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-tools/tests/it/python/tool_server.py");
    let script = script.display().to_string();
    let entry = serde_json::json!({ "command": "python3", "args": ["-u", script, "plain"] });
    let typed = serde_json::json!({ "type": "stdio", "command": "python3", "args": ["-u", script, "plain"] });
    let found = "t.add(*, a: int, b: int = 1) -> int  # Adds.\n";
    for (name, text) in [
        // Claude, Cursor and pydantic-ai.
        ("claude_desktop_config.json", serde_json::json!({ "mcpServers": { "t": entry } }).to_string()),
        (".mcp.json", serde_json::json!({ "mcpServers": { "t": typed } }).to_string()),
        // VS Code, with comments.
        ("mcp.json", format!("{{\n  // Servers.\n  \"servers\": {{ \"t\": {typed}, }},\n}}")),
        ("config.toml", format!("[mcp_servers.t]\ncommand = \"python3\"\nargs = [\"-u\", {script:?}, \"plain\"]\n")),
    ] {
        assert_eq!(tools_of_file(name, &text), found, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    std::fs::write(&file, serde_json::json!({ "mcpServers": { "t": entry } }).to_string()).unwrap();
    let options = ["--servers", file.to_str().unwrap(), "-c", "from tools import t\nawait t.add(a=1)"];
    assert_eq!(Belljar::run_with([&["-p"][..], &options].concat()).stdout, "2\n");
    let missing = Belljar::without_cache().args(["tools", "stubs", "--servers", "/nonexistent/mcp.json"]).run();
    assert!(missing.stderr.contains("/nonexistent/mcp.json"), "{missing:?}");
}

#[test]
fn file_that_contains_belljar_itself_does_not_start_processes_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let command = format!("printf %s \"$BELLJAR_NESTING\" > '{}'", seen.display());
    let file = folder.path().join("mcp.json");
    let entry = serde_json::json!({ "command": "sh", "args": ["-c", command] });
    std::fs::write(&file, serde_json::json!({ "mcpServers": { "t": entry } }).to_string()).unwrap();
    let files = format!("--servers={}", file.display());
    for option in [files.as_str(), &format!("--server=t=sh -c {}", shlex::try_quote(&command).unwrap())] {
        for (nesting, of_server) in [(None, "1"), (Some("1"), "2")] {
            let mut belljar = Belljar::without_cache().args(["tools", "stubs", option]);
            if let Some(nesting) = nesting {
                belljar = belljar.env("BELLJAR_NESTING", nesting);
            }
            let run = belljar.run();
            assert_eq!(run.status, Some(0), "{run:?}");
            assert_eq!(std::fs::read_to_string(&seen).unwrap(), of_server, "{option}");
        }
        std::fs::remove_file(&seen).unwrap();
        let refused = Belljar::without_cache().args(["tools", "stubs", option]).env("BELLJAR_NESTING", "2").run();
        assert!(refused.status == Some(2) && refused.stderr.contains("has started itself"), "{refused:?}");
        assert!(!seen.exists(), "{option}");
    }
}

#[test]
fn notebook_calls_tools() {
    let folder = tempfile::tempdir().unwrap();
    let cell = |source: &str| {
        serde_json::json!({"cell_type": "code", "source": source, "outputs": [], "execution_count": null,
            "metadata": {"tags": ["kept"], "belljar": {"calls": "of an earlier run"}}})
    };
    let caught = "try:\n    await t.fail(message='no such city')\nexcept Exception:\n    print('caught')";
    let late = "import asyncio\nlate = asyncio.ensure_future(t.hang())\nawait t.add(a=2)";
    let cells = ["from tools import t", "await t.add(a=1)", caught, late].map(cell);
    let notebook = serde_json::json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    std::fs::write(folder.path().join("n.ipynb"), notebook.to_string()).unwrap();
    let server = server("t", "plain");
    let run = Belljar::new().args(["run", &server, "n.ipynb"]).directory(folder.path()).run();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let done: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let cells = &done["cells"];
    assert_eq!(cells[0]["metadata"], serde_json::json!({"tags": ["kept"]}), "{done}");
    assert_eq!(cells[1]["outputs"][0]["data"]["text/plain"][0], "2", "{done}");
    let calls = &cells[1]["metadata"]["belljar"]["calls"];
    assert_eq!((calls.as_array().unwrap().len(), calls[0]["status"].as_str()), (1, Some("ok")), "{done}");
    let failed = &cells[2]["metadata"]["belljar"]["calls"][0];
    assert_eq!(cells[2]["outputs"][0]["text"][0], "caught\n", "{done}");
    assert_eq!((failed["server"].as_str(), failed["tool"].as_str()), (Some("t"), Some("fail")), "{done}");
    assert_eq!((failed["status"].as_str(), failed["error"].as_str()), (Some("error"), Some("no such city")), "{done}");
    let calls = cells[3]["metadata"]["belljar"]["calls"].as_array().unwrap().iter();
    let mut statuses: Vec<_> = calls.filter_map(|call| call["status"].as_str()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, ["cancelled", "ok"], "{done}");
}

#[test]
fn stubs_are_printed() {
    let run = Belljar::without_cache().args(["tools", "stubs", &server("t", "plain")]).run();
    assert!(
        run.stdout
            .contains("# from tools import t\n\nasync def add(*, a: int, b: int = 1) -> int:\n    \"\"\"Adds.\"\"\"\n"),
        "{run:?}"
    );
    let run = Belljar::without_cache().args(["tools", "search", &server("t", "plain"), "adds"]).run();
    assert_eq!(run.stdout, "t.add(*, a: int, b: int = 1) -> int  # Adds.\n");
    let run = Belljar::without_cache().args(["tools", "stubs"]).run();
    assert_eq!(run.stderr, "belljar: no servers are given\nhint: use --servers FILE or --server NAME=COMMAND|URL\n");
    let twice = Belljar::without_cache().args(["tools", "stubs", &server("t", "plain"), &server("t", "many")]).run();
    assert!(twice.stderr.starts_with("belljar: two servers are named t\n"), "{}", twice.stderr);
    let pattern = Belljar::without_cache().args(["tools", "stubs", &server("t", "plain"), "--allow-tool", "a["]).run();
    assert!(pattern.stderr.starts_with("belljar: invalid pattern `a[`: "), "{}", pattern.stderr);
}

#[test]
fn servers_of_the_registries_work_together() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("list.txt"), "UTC\nEurope/Warsaw\n").unwrap();
    let mut servers: Vec<String> = registry_servers(folder.path()).iter().map(ToolServer::option).collect();
    let (program, cache) = (crate::harness::program(), crate::harness::cache().display());
    servers.push(format!("--server=belljar='{program}' stdio --cache '{cache}'"));
    let code = format!(
        r#"
import asyncio, tools
from tools import belljar, everything, files, memory, sqlite, thinking, time

text = await files.read_text_file(path={:?})
zones = (text if isinstance(text, str) else text["content"]).split()
await sqlite.create_table(query="create table t (zone text, hour text)")
for now in await asyncio.gather(*(time.get_current_time(timezone=zone) for zone in zones)):
    await sqlite.write_query(query=f"insert into t values ('{{now['timezone']}}', '{{now['datetime'][11:13]}}')")
print(await sqlite.read_query(query="select zone from t order by zone"))
print(await everything.get_sum(a=1, b=2), (await everything.get_tiny_image())[1].mime_type)
graph = await memory.create_entities(entities=[{{"name": "a", "entityType": "b", "observations": ["c"]}}])
print((await memory.read_graph())["entities"][0]["name"])
thought = await thinking.sequentialthinking(thought="x", nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)
print(thought["thoughtHistoryLength"])
print((await belljar.run_python_code(python_code="6 * 7"))["return_value"])
print(tools.search("commit logs", 1, "names").split()[0])
"#,
        folder.path().join("list.txt").display().to_string()
    );
    let options: Vec<&str> = servers.iter().map(String::as_str).collect();
    let run = Belljar::run_with([options.as_slice(), &["--approve", "none", "-c", &code]].concat());
    let expected = "[{'zone': 'Europe/Warsaw'}, {'zone': 'UTC'}]\nThe sum of 1 and 2 is 3. image/png\na\n1\n42\n\
                    git.git_log\n";
    assert_eq!((run.stdout.as_str(), run.status), (expected, Some(0)), "{}", run.stderr);
}

#[test]
fn example_of_the_page_runs() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md")).unwrap();
    let code = page.split("<!-- noon.py -->\n```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("zones.txt"), "Asia/Tokyo\nUTC\nAmerica/New_York\n").unwrap();
    std::fs::write(folder.path().join("noon.py"), code).unwrap();
    let servers: Vec<String> = registry_servers(folder.path()).iter().map(ToolServer::option).collect();
    let belljar = Belljar::new().args(["run", "--approve", "none"]).args(&servers).arg("noon.py");
    let run = belljar.directory(folder.path()).run();
    assert_eq!(
        (run.stdout.as_str(), run.status),
        ("[{'zone': 'Asia/Tokyo', 'hour': 21}]\n", Some(0)),
        "{}",
        run.stderr
    );
    assert!(page.contains("`[{'zone': 'Asia/Tokyo', 'hour': 21}]`"));
}
