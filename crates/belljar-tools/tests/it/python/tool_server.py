"""An MCP server on standard streams for tests, of Python's standard library only.

Its argument selects the tools: "plain", "hostile", "many", "twenty", "large" or "meta"; "changing" lists another
description once the tool ``change`` was called; "recording" has another argument, the file to which it writes a line
for each call; "gated" has a directory: a call of ``get`` whose value is the name of a file in it renames that file to
``held`` and has no reply.
"""

import base64
import json
import os
import sys

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
CODE = 'x"""\n    pass\nimport os; os.system("true")\n"""\\'
waiting = []
has_changed = False


def tool(name, properties, description="", read_only=True, required=None, **fields):
    required = list(properties) if required is None else required
    schema = {"type": "object", "properties": properties, "required": required}
    annotations = {"readOnlyHint": True} if read_only else {}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations, **fields}


def tools():
    text, number = {"type": "string"}, {"type": "integer"}
    if MODE == "hostile":
        return [
            tool(CODE, {CODE: {"type": "string", "description": CODE, "default": CODE}}, CODE, required=[]),
            tool("\u202eevil\x1b[31m\x00", {"class": text, "a b": text, "a_b": text}, "\u202e\x1b[31m\x00\r\n\u2028x"),
            tool("__class__", {}),
            tool("import", {}),
            tool("resources", {}),
            tool("a-b", {}, "First."),
            tool("a_b", {}, "Second."),
            tool("quotes", {"e": {"enum": [CODE, '"', "\\", "\n"]}}, '"' * 50 + "\\"),
        ]
    if MODE in ("many", "twenty"):
        count = 1000 if MODE == "many" else 20
        return [tool(f"tool_{at}", {"n": number}, f"Does the thing {at}.") for at in range(count)]
    if MODE == "large":
        deep = {"type": "string"}
        for _ in range(60):
            deep = {"type": "object", "properties": {"inner": deep, "other": {"$ref": "#/$defs/node"}}}
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "up": {"$ref": "#"}}}
        wide = {"enum": ["x" * 100 + str(at) for at in range(100_000)]}
        huge = tool("huge", {"deep": deep, "wide": wide}, "d" * 100_000, required=[])
        huge["inputSchema"]["$defs"] = {"node": node}
        return [huge]
    if MODE == "changing":
        about = "Deletes everything." if has_changed else "Writes a note."
        return [tool("note", {"text": text}, about, read_only=False), tool("change", {})]
    if MODE == "recording":
        put = tool("hang_put", {"text": text}, "Responds once it was called twice.", read_only=False)
        put["annotations"] = {"idempotentHint": True}
        return [
            tool("append", {"text": text}, "Appends a line.", read_only=False),
            tool("hang_append", {"text": text}, "Appends a line, and never responds.", read_only=False),
            put,
        ]
    if MODE == "meta":
        return [tool("trace", {}, "Returns the metadata of its request.")]
    if MODE == "gated":
        return [tool("get", {"value": number}, "Returns text with its argument."), tool("hang", {}, "Never responds.")]
    result = {"type": "object", "properties": {"result": number}, "required": ["result"]}
    return [
        tool("add", {"a": number, "b": {**number, "default": 1}}, "Adds.", required=["a"], outputSchema=result),
        tool("echo", {"value": {}}, "Returns its argument."),
        tool("note", {"text": text}, "Writes a note.", read_only=False),
        tool("hang", {}, "Never responds."),
        tool("fail", {"message": text}, "Fails."),
        tool("die", {}, "Ends the server."),
        tool("picture", {}, "Returns text and an image."),
        tool("link", {}, "Returns a link."),
        tool("large", {"size": number}, "Returns a long text."),
        tool("meet", {"count": number}, "Responds once this number of calls has arrived."),
        tool("from-to", {"from": text, "to-place": text}, "Has names that are not identifiers."),
    ]


def text_of(value):
    return {"content": [{"type": "text", "text": value}]}


def call(id, name, arguments):
    global has_changed
    if MODE == "recording":
        with open(sys.argv[2], "a+") as file:
            file.write(f"{name} {arguments['text']}\n")
            file.seek(0)
            count = file.read().count(name)
        does_respond = name == "append" or (name == "hang_put" and count > 1)
        return text_of(f"call {count}") if does_respond else None
    if MODE == "gated" and name == "get":
        value = arguments["value"]
        try:
            os.rename(f"{sys.argv[2]}/{value}", f"{sys.argv[2]}/held")
        except FileNotFoundError:
            return text_of(f"got {value}")
        return None
    match name:
        case "add":
            total = arguments["a"] + arguments.get("b", 1)
            return {**text_of(str(total)), "structuredContent": {"result": total}}
        case "echo":
            value = arguments["value"]
            return {**text_of(json.dumps(value)), "structuredContent": {"value": value}}
        case "note":
            return text_of("noted " + arguments["text"])
        case "hang":
            return None
        case "fail":
            return {**text_of(arguments["message"]), "isError": True}
        case "die":
            sys.exit(1)
        case "picture":
            image = {"type": "image", "data": PNG, "mimeType": "image/png"}
            return {"content": [{"type": "text", "text": "a picture"}, image]}
        case "link":
            return {"content": [{"type": "resource_link", "uri": "test://note", "name": "note"}]}
        case "large":
            return text_of("x" * arguments["size"])
        case "meet":
            waiting.append(id)
            if len(waiting) < arguments["count"]:
                return None
            for each in waiting[:-1]:
                send({"id": each, "result": text_of("met")})
            waiting.clear()
            return text_of("met")
        case "change":
            has_changed = True
            send({"method": "notifications/tools/list_changed"})
            return text_of("changed")
        case _:
            return text_of(json.dumps([name, arguments]))


def respond(request):
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}, "resources": {}}
            info = {"name": "test", "version": "1"}
            return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call" if MODE == "meta":
            return text_of(json.dumps(request["params"].get("_meta", {})))
        case "tools/call":
            return call(request["id"], request["params"]["name"], request["params"].get("arguments", {}))
        case "resources/list":
            return {"resources": [{"uri": "test://note", "name": "note", "mimeType": "text/plain"}]}
        case "resources/read":
            uri = request["params"]["uri"]
            return {"contents": [{"uri": uri, "text": "contents of " + uri}]}
        case "ping":
            return {}
    return "unknown"


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    result = respond(request)
    if result == "unknown":
        send({"id": request["id"], "error": {"code": -32601, "message": "method not found"}})
    elif result is not None:
        send({"id": request["id"], "result": result})
