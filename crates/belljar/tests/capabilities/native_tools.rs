//! Code in native kernels that calls tools of MCP servers, in the real sandbox.

use belljar_mcp_client::ProtocolEra;
use serde_json::{Value, json};

use crate::native_calls::ENVIRONMENTS;
use crate::tool_client::{Client, call, tool_server};

belljar_testing::trials! {
    native_code_calls_tools: [NativeSandbox],
    native_code_reads_resources: [NativeSandbox],
    native_calls_are_approved_by_elicitation: [NativeSandbox],
    native_time_limit_does_not_run_while_code_waits: [NativeSandbox],
    sessions_of_native_kernels_keep_modules_of_servers: [NativeSandbox],
    native_code_that_breaks_the_protocol_makes_no_calls: [NativeSandbox],
    tools_work_in_weak_kernels: [Root, WeakSandbox],
}

/// Returns a client of a server with native kernels and these options.
fn client(era: ProtocolEra, options: &[&str], answers: &'static [&'static str]) -> Client {
    let environments = ENVIRONMENTS.display().to_string();
    let native = ["--sandbox", "native", "--native-dir", &environments, "--toolset", "all"];
    let arguments: Vec<String> = native.iter().chain(options).map(|option| (*option).to_owned()).collect();
    Client::new(era, &arguments, answers)
}

/// Runs code once with a server `t` whose calls need no approval, and returns the structured result.
fn run(options: &[&str], code: &str) -> Value {
    let server = tool_server("t", "plain");
    let options = [&[server.as_str(), "--approve", "none"], options].concat();
    client(ProtocolEra::Auto, &options, &[])
        .run(async |server| call(&server, "run_python_code", json!({ "python_code": code })).await.1)
}

fn native_code_calls_tools() {
    let code = "
import asyncio, threading, tools
from tools import t, ToolError
from tools.t import echo
done = [sum(await asyncio.gather(*(t.add(a=n) for n in range(50))))]
try:
    await t.fail(message='no such city')
except ToolError as error:
    done.append(f'{error.server}.{error.tool}: {error}')
try:
    await t.add(a='x')
except ToolError as error:
    done.append(str(error).splitlines()[-1])
picture = (await t.picture())[1]
done += [t.add(a=1).result(), picture[:4] == b'\\x89PNG', picture.mime_type, await (await t.link()).read()]
done.append(await echo(value={'$int': [1, None, 'é']}))
def in_thread():
    done.append(asyncio.run(asyncio.wait_for(t.add(a=5), 60)))
thread = threading.Thread(target=in_thread)
thread.start()
while thread.is_alive():
    await asyncio.sleep(0.01)
done.append(await asyncio.wait_for(t.add(a=6), 60))
try:
    await asyncio.wait_for(t.hang(), 0.1)
except TimeoutError:
    done.append('cancelled')
done.append(tools.search('adds', 1, 'names').strip())
done";
    let outcome = run(&[], code);
    let expected = json!([1275, "t.fail: no such city", "add(*, a: int, b: int = 1) -> int", 2, true, "image/png",
        "contents of test://note", { "value": { "$int": [1, null, "é"] } }, 6, 7, "cancelled", "t.add"]);
    assert_eq!(outcome["return_value"], expected, "{outcome}");
    let calls = outcome["calls"].as_array().unwrap();
    let with = |status: &str| calls.iter().filter(|call| call["status"] == status).count();
    assert_eq!((with("error"), with("cancelled")), (2, 1), "{outcome}");
    let unawaited = run(&[], "from tools import t\nt.add(a=1)");
    assert!(unawaited["error"].as_str().unwrap().contains("NotAwaitedError: the call of t.add"), "{unawaited}");
    let child = "import os\nfrom tools import t, ToolError\nt.add\nif os.fork() == 0:\n    try:\n        \
                 t.add(a=1).result()\n    except ToolError as error:\n        os.write(1, str(error).encode())\n    \
                 os._exit(0)\nos.wait()\nawait t.add(a=2)";
    let forked = run(&[], child);
    assert_eq!(forked["return_value"], 3, "{forked}");
    assert!(forked["output"][0].as_str().unwrap().contains("processes that the code starts cannot call"), "{forked}");
}

fn native_code_reads_resources() {
    let code = "
import asyncio
from tools import t
listed = await t.resources.list()
done = [[(each.uri, each.name, each.mime_type, each.server) for each in listed], await listed[0].read()]
done += await asyncio.gather(*(t.resources.read(f'test://{n}') for n in range(3)))
done += [t.resources.list().result()[0].uri, t.resources.read('test://sync').result(), repr(t.resources)]
done.append('resources' in dir(t))
done";
    let outcome = run(&[], code);
    let expected = json!([
        [["test://note", "note", "text/plain", "t"]],
        "contents of test://note",
        "contents of test://0",
        "contents of test://1",
        "contents of test://2",
        "test://note",
        "contents of test://sync",
        "<resources of t>",
        true
    ]);
    assert_eq!(outcome["return_value"], expected, "{outcome}");
    let calls = outcome["calls"].as_array().unwrap();
    assert!(calls.iter().all(|call| call["tool"] == "resources" && call["status"] == "ok"), "{outcome}");
    assert_eq!(calls[0]["arguments"], r#"{"uri":"test://note"}"#, "{outcome}");
    let code = "from tools import t, ToolDenied\ntry:\n    await t.resources.read('test://note')\n\
                except ToolDenied as error:\n    print(error)\ntry:\n    await t.resources.list()\n\
                except ToolDenied as error:\n    print(error)";
    let outcome = run(&["--deny-tool", "t.resources"], code);
    let denied = "the policy denies `t.resources`";
    assert_eq!(outcome["output"], json!([denied, denied]), "{outcome}");
}

fn native_calls_are_approved_by_elicitation() {
    let code = "from tools import t, ToolDenied\ndone = []\nfor text in 'abc':\n    try:\n        \
                done.append(await t.note(text=text))\n    except ToolDenied as error:\n        \
                done.append(str(error))\ndone";
    let denied = "the user denied the call of `t.note`";
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        for (tool, argument) in [("run_python_code", "python_code"), ("execute_code", "code")] {
            let client = client(era, &[&tool_server("t", "plain")], &["yes", "no", "run"]);
            let structured = client.run(async |server| call(&server, tool, json!({ argument: code })).await.1);
            let value = structured.get("return_value").unwrap_or(&structured["result"]).to_string();
            assert!(value.contains("noted a") && value.contains(denied) && value.contains("noted c"), "{structured}");
            let questions = client.questions.lock().unwrap();
            assert_eq!(questions.len(), 3, "{questions:?}");
            let line = "done.append(await t.note(text=text))";
            assert!(questions[0].contains("Line: Cell ") && questions[0].contains(line), "{questions:?}");
        }
    }
}

fn native_time_limit_does_not_run_while_code_waits() {
    let code = "from tools import t, ToolTimeout\ntry:\n    await t.hang()\nexcept ToolTimeout as error:\n    \
                print(error)";
    // The code itself takes less than its limit also on a busy machine, and the call takes more.
    let outcome = run(&["--timeout", "8", "--tool-timeout", "10"], code);
    assert_eq!(outcome["output"], json!(["t.hang did not respond within 10 s"]), "{outcome}");
    let endless = run(&["--timeout", "2"], "from tools import t\nawait t.add(a=1)\nwhile True: pass");
    assert!(endless["error"].as_str().unwrap().contains("Limit reached: time"), "{endless}");
    let limited = run(&["--max-tool-calls", "2"], "from tools import t\nfor _ in range(3):\n    await t.add(a=1)");
    assert!(limited["error"].as_str().unwrap().contains("ToolLimitExceeded"), "{limited}");
}

fn sessions_of_native_kernels_keep_modules_of_servers() {
    let client = client(ProtocolEra::Auto, &[&tool_server("t", "plain")], &[]);
    client.run(async |server| {
        let begin = "from tools import t\nimport asyncio\nadd = t.add\nlate = asyncio.ensure_future(t.hang())\n\
                     await asyncio.sleep(0.1)";
        let (_, first) = call(&server, "execute_code", json!({ "code": begin })).await;
        let id = first["session_info"]["session_id"].clone();
        assert_eq!(first["calls"][0]["status"], "cancelled", "{first}");
        let again = "try:\n    await late\nexcept RuntimeError as error:\n    print(error)\nawait add(a=1)";
        let (_, second) = call(&server, "execute_code", json!({ "code": again, "session_id": id })).await;
        assert_eq!(second["output"], json!(["the cell ended before the function of the host replied\n"]), "{second}");
        assert_eq!(second["result"], "2", "{second}");
        let restarted = call(&server, "restart_session", json!({ "session_id": id })).await.0;
        assert!(restarted.contains("fresh interpreter"), "{restarted}");
        let code = "from tools import t\nawait t.add(a=2)";
        let (_, third) = call(&server, "execute_code", json!({ "code": code, "session_id": id })).await;
        assert_eq!(third["result"], "3", "{third}");
    });
}

fn native_code_that_breaks_the_protocol_makes_no_calls() {
    let code = "
from tools import t, ToolException
from belljar_kernel import exchange
await t.add(a=1)
exchange._channel._stream.sendall(b'not json\\n')
try:
    await t.add(a=2)
except ToolException as error:
    print(error)
'alive'";
    let outcome = run(&[], code);
    assert_eq!(outcome["return_value"], "alive", "{outcome}");
    assert_eq!(outcome["calls"].as_array().unwrap().len(), 1, "{outcome}");
}

fn tools_work_in_weak_kernels() {
    let server = tool_server("t", "plain");
    let python = belljar_testing::shared_folder::SYSTEM_PYTHON;
    let folder = belljar_testing::shared_folder::shared_folder("belljar-weak-tools").unwrap();
    let bin = belljar_testing::install::pip_with(python, &folder, "native", &["ipykernel"]);
    let venv = bin.parent().unwrap().display().to_string();
    let arguments = ["--sandbox", "native-weak", "--venv", &venv, &server].map(str::to_owned);
    let client = Client::new(ProtocolEra::Auto, &arguments, &[]);
    let code = "from tools import t\nawait t.add(a=1)";
    let (_, outcome) =
        client.run(async |server| call(&server, "run_python_code", json!({ "python_code": code })).await);
    assert_eq!(outcome["return_value"], 2, "{outcome}");
}
