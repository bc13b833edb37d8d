"""Calls of the parent's functions in code that may await: they become awaits, so that nothing is on the stack.

Only calls by a name that is not defined, or that is one of the parent's functions, and only where an ``await`` may be:
at the top level of a feed, and in ``async def`` functions. Other calls block.
"""

import ast
from typing import Any

from .monty_objects import Function


def insert_awaits[T: ast.AST](tree: T, other: ast.AST | None, known: dict[str, Any]) -> T:
    """Changes calls of the parent's functions in a part of a feed. ``other`` is the rest of the feed; ``known`` are the
    names that are defined."""
    names = _Names()
    for part in (tree, other):
        if part is not None:
            names.visit(part)
    external = {name for name in names.called - names.bound if type(known.get(name, _UNKNOWN)) is Function}
    unknown = {name for name in names.called - names.bound if name not in known}
    if not (external or unknown):
        return tree
    return ast.fix_missing_locations(_Awaits(external, unknown).visit(tree))


_UNKNOWN = Function("", None)


class _Names(ast.NodeVisitor):
    """The names that code calls, and those that it binds in any scope."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.bound: set[str] = set()

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            self.called.add(node.func.id)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.bound.add(node.arg)

    def visit_alias(self, node: ast.alias) -> None:
        self.bound.add((node.asname or node.name).partition(".")[0])

    def generic_visit(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.bound.add(node.name)
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name:
                self.bound.add(node.name)
            case ast.MatchMapping() if node.rest:
                self.bound.add(node.rest)
        super().generic_visit(node)


class _Awaits(ast.NodeTransformer):
    def __init__(self, external: set[str], unknown: set[str]) -> None:
        self._external = external
        self._unknown = unknown

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def _leave(self, node: ast.AST) -> ast.AST:
        """Leaves scopes unchanged that cannot await."""
        return node

    visit_FunctionDef = visit_Lambda = visit_ClassDef = visit_GeneratorExp = _leave

    def visit_Await(self, node: ast.Await) -> ast.AST:
        if isinstance(node.value, ast.Call) and self._is_external(node.value):
            return self._await(node.value, "__belljar_await__")
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._is_external(node):
            return self._await(node, "__belljar_call__")
        return self.generic_visit(node)

    def _is_external(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Name) and node.func.id in self._external | self._unknown

    def _await(self, node: ast.Call, helper: str) -> ast.AST:
        function = node.func
        if function.id in self._unknown:
            name = _at(ast.Constant(function.id), function)
            function = _at(ast.Call(_name("__belljar_function__", function), [name], []), function)
        args = [self.visit(each) for each in node.args]
        keywords = [self.visit(each) for each in node.keywords]
        return _at(ast.Await(_at(ast.Call(_name(helper, node), [function, *args], keywords), node)), node)


def _name(name: str, place: ast.AST) -> ast.Name:
    return _at(ast.Name(name, ast.Load()), place)


def _at[T: ast.AST](node: T, place: ast.AST) -> T:
    return ast.copy_location(node, place)
