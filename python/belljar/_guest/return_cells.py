"""Code of the sandbox, a session's first cell: lets the following cells end with ``return``.

IPython parses a cell before it compiles it. A cell with a ``return`` outside of functions becomes the body of a
function, whose result is the value of the cell. Its variables stay global. All other cells stay as they are.
"""

import ast
from typing import Any

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_NAME = "<cell>"
"""The function's name in tracebacks. Code cannot use it as a name."""


class _Statements(ast.NodeTransformer):
    """Makes the statements of a module ones that a function can contain."""

    def visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # A variable that is declared global has no annotation.
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.names[0].name != "*":
            return node
        call = ast.parse(f"__import__('builtins').exec({ast.unparse(node)!r}, globals())").body[0]
        return ast.fix_missing_locations(ast.copy_location(call, node))


class _Returns:
    """A transformer of syntax trees, as IPython uses them."""

    def visit(self, tree: ast.Module) -> ast.Module:
        if _returns(tree):
            tree.body = _body(tree)
        return tree


def _body(tree: ast.Module) -> list[ast.stmt]:
    """Returns statements that define a function with the statements of a module and call it."""
    body: list[ast.stmt] = [_Statements().visit(statement) for statement in tree.body]  # type: ignore[misc]
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    start = 0
    while isinstance(first := body[start], ast.ImportFrom) and first.module == "__future__":
        start += 1
    cell = _cell(body[start:])
    if names := _variables(cell):
        cell.body.insert(0, ast.copy_location(ast.Global(names), cell))
    call = ast.Call(ast.Name(cell.name, ast.Load()), [], [])
    value = ast.Expr(ast.Await(call) if isinstance(cell, ast.AsyncFunctionDef) else call)
    # Tracebacks begin with this line.
    return [*body[:start], cell, ast.fix_missing_locations(ast.copy_location(value, body[-1]))]


def _returns(tree: ast.Module) -> bool:
    """Returns whether a module has a ``return`` outside of functions."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, _SCOPES):
            nodes += ast.iter_child_nodes(node)
    return False


def _cell(body: list[ast.stmt]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Returns a function with these statements, an async one if they await."""
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef):
        no_arguments = ast.arguments([], [], None, [], [], None, [])
        cell = kind(_NAME, no_arguments, body, [])
        ast.fix_missing_locations(ast.copy_location(cell, body[0]))
        try:
            compile(ast.Module([cell], []), _NAME, "exec")
        except SyntaxError:
            continue
        break
    return cell


def _variables(cell: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Returns the names that a function would have as its local variables. None of a function with an error."""
    try:
        module = compile(ast.Module([cell], []), _NAME, "exec")
    except SyntaxError:
        return []
    code = next(constant for constant in module.co_consts if hasattr(constant, "co_varnames"))
    return sorted({*code.co_varnames, *code.co_cellvars})


def _install(shell: Any) -> None:
    should_run_async = shell.should_run_async

    def should_await(raw_cell: str, *, transformed_cell: str | None = None, **options: Any) -> bool:
        # IPython compiles the cell to find out, which fails for one with `return`.
        cell = raw_cell if transformed_cell is None else transformed_cell
        if "return" in cell and ("await" in cell or "async" in cell):
            try:
                tree = ast.parse(cell)
                if _returns(tree):
                    return any(isinstance(each, ast.AsyncFunctionDef) and each.name == _NAME for each in _body(tree))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return False
        return bool(should_run_async(raw_cell, transformed_cell=transformed_cell, **options))

    shell.should_run_async = should_await
    shell.ast_transformers.append(_Returns())


_install(get_ipython())  # type: ignore[name-defined] # noqa: F821
