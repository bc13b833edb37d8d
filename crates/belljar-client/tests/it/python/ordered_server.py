"""An MCP server whose JSON is not in alphabetical order."""

import json
import sys

SCHEMA = {
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "answer": {"type": "string"}, "10": {}, "9": {}},
    "required": ["reasoning", "answer"],
}
RESULT = {"zeta": 1, "alpha": {"y": 2, "x": 3}}

for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "ordered", "version": "1"},
            }
        case "tools/list":
            tool = {"name": "think", "inputSchema": SCHEMA, "outputSchema": SCHEMA, "_meta": {"z": 1, "a": 2}}
            result = {"tools": [tool]}
        case "tools/call" if message["params"]["arguments"].get("text"):
            result = {"content": [{"type": "text", "text": json.dumps(RESULT)}]}
        case "tools/call":
            # The arguments as they were sent.
            text = line[line.index('"arguments":') + len('"arguments":') :].split("}")[0] + "}"
            structured = RESULT | {"sent": text}
            result = {"content": [], "structuredContent": structured}
        case _:
            if "id" in message:
                error = {"code": -32601, "message": "Method not found"}
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
