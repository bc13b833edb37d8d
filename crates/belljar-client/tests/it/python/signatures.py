"""Prints the names that users of pydantic-ai's MCP client write, as JSON: arguments, methods and functions."""

import inspect
import json
import warnings

warnings.simplefilter("ignore")

from pydantic_ai import mcp, toolsets  # noqa: E402

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def of_class(cls: type) -> set[str]:
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    arguments = {parameter.name for parameter in parameters if parameter.kind not in VARIADIC}
    return arguments | {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}


names: set[str] = set()
for module, kind in [(mcp, "MCP"), (toolsets, "AbstractToolset")]:
    for name, value in vars(module).items():
        if inspect.isclass(value) and name.startswith(kind) and not issubclass(value, (Exception, dict)):
            names |= of_class(value)
        elif inspect.isfunction(value) and name.startswith("load_mcp"):
            names.add(name)
print(json.dumps(sorted(names)))
