"""An MCP server with a fault that its argument selects. It uses only the standard library."""

import json
import os
import sys
import time

FAULT = sys.argv[1]
TOOLS = [{"name": "act", "inputSchema": {"type": "object"}}, {"name": "fine", "inputSchema": {"type": "object"}}]
ANNOTATIONS = {
    "read": {"readOnlyHint": True},
    "append": {"destructiveHint": False},
    "delete": {"destructiveHint": True},
    "unannotated": {},
}
if FAULT == "annotated":
    TOOLS = [{"name": name, "inputSchema": {"type": "object"}, "annotations": hints} for name, hints in ANNOTATIONS.items()]
if FAULT == "lists_all":
    TOOLS.append({"name": "received", "inputSchema": {"type": "object"}})


def send(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict, result: object) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def refuse(request: dict, code: int, message: str) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def text(words: str) -> dict:
    return {"content": [{"type": "text", "text": words}]}


waiting: list[dict] = []


def act(request: dict) -> None:
    match FAULT:
        case "dies" | "subscribed":
            sys.stderr.write("Traceback (most recent call last):\nMemoryError: no more room\n")
            sys.stderr.flush()
            os._exit(3)
        case "hangs":
            pass
        case "links":
            links = [{"type": "resource_link", "uri": uri, "name": "n"} for uri in ("https://example.org/x", "mem://no")]
            answer(request, {"content": links, "_meta": {"trace": "abc"}, "structuredContent": {"a": 1}})
        case "task_fails" | "task_expires" if "task" not in request["params"]:
            refuse(request, -32601, "the tool must be called as a task")
        case "task_fails" | "task_expires":
            answer(request, {"task": {"taskId": "t1", "status": "working", "pollInterval": 20}})
        case "mentions_task":
            refuse(request, -32601, "there is no such task list")
        case "waits_for_peer":
            # Answers only when the other call has arrived too.
            waiting.append(request)
            if len(waiting) == 2:
                for first in reversed(waiting):
                    answer(first, text(first["params"]["arguments"]["name"]))
        case "talks":
            # Each pause is shorter than the client's read timeout; their sum is longer.
            token = request["params"]["_meta"]["progressToken"]
            for step in range(8):
                time.sleep(1)
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
            answer(request, text("done"))
        case "logs_and_steps":
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "a line"}})
            token = request["params"]["_meta"]["progressToken"]
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
            answer(request, text("done"))
        case "floods":
            for count in range(20_000):
                data = f"line {count} " + "x" * 80
                send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}})
            answer(request, text("done"))
        case "babbles":
            for _ in range(10_000):
                sys.stdout.write("this is not JSON\n")
            sys.stdout.flush()
            answer(request, text("done"))
        case "malformed":
            sys.stdout.write('{"jsonrpc": "2.0", "id": %d, "result": {"content": [\n' % request["id"])
            sys.stdout.write('[1, 2, 3]\n"text"\n{}\n{"jsonrpc": "2.0"}\n{"id": 77}\n\xff\n\n')
            answer(request, text("done"))
        case "not_text":
            sys.stdout.buffer.write(b"\xff\xfe\x80 bytes that are no text\n{\"jsonrpc\": \"\xff\"}\n")
            sys.stdout.flush()
            answer(request, text("done"))
        case "visits":
            page = {"mode": "url", "url": "https://example.org/agree", "message": "Agree first.", "elicitationId": "e1"}
            error = {"code": -32042, "message": "You must agree first.", "data": {"elicitations": [page]}}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        case "malformed_result":
            answer(request, {"content": [{"type": "text"}, 7]})
        case "wrong_ids":
            send({"jsonrpc": "2.0", "id": 4711, "result": text("for another")})
            send({"jsonrpc": "2.0", "id": "no such", "result": text("for another")})
            send({"jsonrpc": "2.0", "id": None, "result": text("unrequested")})
            answer(request, text("done"))
            answer(request, text("again"))
        case "string_ids":
            send({"jsonrpc": "2.0", "id": str(request["id"]), "result": text("done")})
        case "huge":
            answer(request, text("x" * (17 * 1024 * 1024)))
        case "large":
            answer(request, text("x" * (8 * 1024 * 1024)))
        case "endless":
            while True:
                sys.stdout.write("x" * 65_536)
        case "unknown_content":
            answer(request, {"content": [{"type": "hologram", "data": "…"}]})
        case "bad_base64":
            answer(request, {"content": [{"type": "image", "data": "A", "mimeType": "image/png"}]})
        case "closes_output":
            os.close(1)
            time.sleep(60)
        case "asks":
            send({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
            reply = json.loads(sys.stdin.readline())
            answer(request, text(reply["error"]["message"]))
        case "samples" | "samples_with_tools" | "elicits" | "lists_roots":
            schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
            method, params = {
                "samples": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
                "samples_with_tools": (
                    "sampling/createMessage",
                    {"messages": [], "maxTokens": 1, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
                ),
                "elicits": ("elicitation/create", {"message": "Who?", "requestedSchema": schema}),
                "lists_roots": ("roots/list", {}),
            }[FAULT]
            send({"jsonrpc": "2.0", "id": "q1", "method": method, "params": params})
            answer(request, text(sys.stdin.readline()))
        case _:
            answer(request, text("done"))


cursor_pages = 0
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "server/discover" if FAULT == "ignores_discover":
            if path := os.environ.get("NOTES"):
                with open(path, "a") as notes:
                    notes.write("discover\n")
            continue
        case "server/discover" if FAULT == "slow_modern" and not os.path.getsize(os.environ["NOTES"]):
            # Slow at the first start, so that the client falls back to `initialize`, which this server rejects.
            with open(os.environ["NOTES"], "a") as notes:
                notes.write("was slow\n")
            continue
        case "server/discover" if FAULT == "slow_modern":
            info = {"name": "slow", "version": "1"}
            versions = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private"}
            answer(message, {**versions, "capabilities": {"tools": {}}, "serverInfo": info})
        case "initialize" if FAULT == "slow_modern":
            error = {"code": -32022, "message": "initialize is not accepted", "data": {"supported": ["2026-07-28"]}}
            send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case "initialize":
            if FAULT == "never_initializes":
                continue
            if FAULT == "dies_at_first_start" and not os.path.getsize(os.environ["NOTES"]):
                with open(os.environ["NOTES"], "a") as notes:
                    notes.write("died\n")
                sys.exit(2)
            if FAULT == "dies_at_start":
                sys.stderr.write("config.toml: no such file\n")
                sys.exit(2)
            capabilities = {"tools": {}, "resources": {"subscribe": True}} if FAULT == "subscribed" else {"tools": {}}
            info = {"name": "faulty", "version": "1"}
            client = message["params"]["clientInfo"]
            announced = message["params"]["capabilities"]
            version = message["params"]["protocolVersion"]
            answer(message, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        case "tools/list" if FAULT == "endless_pages":
            cursor_pages += 1
            tool = {"name": f"t{cursor_pages}", "inputSchema": {"type": "object"}}
            answer(message, {"tools": [tool], "nextCursor": str(cursor_pages)})
        case "tools/list" if FAULT == "pages":
            page = int(message["params"].get("cursor", "0"))
            tools = [{"name": f"t{page}", "inputSchema": {"type": "object"}}]
            answer(message, {"tools": tools, "nextCursor": str(page + 1) if page < 4 else ""})
        case "tools/list":
            answer(message, {"tools": TOOLS})
        case "tasks/get" if FAULT == "task_fails":
            answer(message, {"taskId": "t1", "status": "failed", "statusMessage": "out of paper"})
        case "tasks/result" if FAULT == "task_fails":
            answer(message, {"isError": True, **text("out of paper")})
        case "tasks/get" if FAULT == "task_expires":
            refuse(message, -32602, "unknown task t1")
        case "resources/subscribe" if FAULT == "subscribed":
            answer(message, {})
        case "tools/call" if message["params"]["name"] == "act":
            act(message)
        case "tools/call" if message["params"]["name"] == "client":
            answer(message, text(json.dumps(client)))
        case "tools/call" if message["params"]["name"] == "announced":
            answer(message, text(json.dumps(announced)))
        case "tools/call" if message["params"]["name"] == "received":
            answer(message, text(json.dumps(message["params"])))
        case "tools/call" if message["params"]["name"] == "process_id":
            answer(message, text(str(os.getpid())))
        case "tools/call" if message["params"]["name"] == "starts_another":
            # A descendant that outlives its parent unless its group is killed.
            import subprocess

            descendant = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            answer(message, text(str(descendant.pid)))
        case "tools/call" if message["params"]["name"] == "mutters":
            sys.stderr.write("first line\nsecond line\n")
            sys.stderr.flush()
            answer(message, text("done"))
        case "tools/call" if message["params"]["name"] == "environment":
            answer(message, text(json.dumps({**os.environ, "CWD": os.getcwd()})))
        case "tools/call" if message["params"]["name"] == "picture":
            image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
            answer(message, {"content": [{"type": "text", "text": "a picture"}, image]})
        case "tools/call" if message["params"]["name"] == "hostile/../pictures":
            kinds = [
                "image/../../../made", "../../made", "/etc/made", "image/png/../../.bashrc", "image/.bashrc", "image/",
                "", "image/png\0.txt", "image/p\nng", "image/\u202egnp", "image/..", "image/png;name=../../made",
                "image/~", "image/$HOME", "image/C:\\made", "image/" + "long" * 10_000,
            ]
            content = [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": kind} for kind in kinds]
            for uri in ["file:///etc/made", "../../made", "x://y/../../made"]:
                blob = {"uri": uri, "blob": "iVBORw0KGgo=", "mimeType": "application/../../made"}
                content.append({"type": "resource", "resource": blob})
            answer(message, {"content": content})
        case "tools/call" if message["params"]["name"] == "fails":
            token = message["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1e308, "message": "a \u202estep\u2028"}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            answer(message, {**text("it \x1b[31mwent \u202ewrong\u2029, \u200ba\u200db"), "isError": True})
        case "tools/call":
            answer(message, text("fine"))
        case "notifications/cancelled":
            sys.stderr.write(f"cancelled {message['params']['requestId']}\n")
            sys.stderr.flush()
            if path := os.environ.get("NOTES"):
                with open(path, "a") as notes:
                    notes.write("cancelled\n")
        case None:
            pass
        case _ if "id" in message:
            error = {"code": -32601, "message": "Method not found"}
            send({"jsonrpc": "2.0", "id": message["id"], "error": error})
