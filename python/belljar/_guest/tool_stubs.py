"""The stubs of the tools of a server's own MCP servers, as the value of the code: for `tool_stubs`."""

import sys

# Not imported: without MCP servers, the package of this name would be installed.
_tools = sys.modules.get("tools")
_parts = ["from typing import Any, Literal, Never, NotRequired, TypedDict"]
for _server in _tools.servers() if _tools else ():
    _parts.append(f"# from tools import {_server}")
    try:
        # In the server's order, which `dir` does not keep.
        for _name in getattr(_tools, _server).__dir__():
            if _name != "resources":
                # Without the comment that names the server.
                _parts.append(_tools.describe(f"{_server}.{_name}").partition("\n")[2].strip())
    except Exception as _error:
        _parts.append("# unavailable: " + " ".join(str(_error).split()))
"\n\n".join(_parts) + "\n" if _tools else ""
