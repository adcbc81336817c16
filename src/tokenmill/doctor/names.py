"""What the names in a Python file stand for, told by reading it: imports, aliases, simple assignments.

A file's text comes in; out comes a `Script` that can say, for an expression, the paths it may stand for:

    import multiprocessing as mp           mp.Pool              multiprocessing.Pool
    ctx = mp.get_context("spawn")          ctx.Pool             multiprocessing.get_context().Pool
    enc = tiktoken.get_encoding("gpt2")    enc._core_bpe        tiktoken.get_encoding()._core_bpe
    with mp.Pool(8) as pool: ...           pool.imap            multiprocessing.Pool().imap

A name that is assigned in several places stands for all of them: better one question too many than a fault
overlooked. Nothing is imported and nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tokenmill.errors import SourceError

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MAX_PATH = 200  # characters: a longer path is a chain of calls that no check asks for


class Binding(NamedTuple):
    """One place where a name gets its meaning."""

    how: Literal["import", "value", "function", "parameter", "iterates", "other"]
    node: ast.AST
    value: ast.expr | None = None
    path: str = ""


class Script:
    """A file as it reads: its tree, and for every scope the bindings of its names."""

    def __init__(self, source: str, filename: str) -> None:
        try:
            self.tree = ast.parse(source)
        except SyntaxError as error:
            raise SourceError(f"`{filename}` is no Python: {error.msg} in line {error.lineno}") from None
        except (RecursionError, MemoryError):
            raise too_deep(filename) from None
        except ValueError as error:
            raise SourceError(f"`{filename}` is no Python: {error}") from None
        self.source = source
        self.filename = filename
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []  # in the order of the text
        self.bindings: dict[ast.AST, dict[str, list[Binding]]] = {}
        self.global_names: dict[ast.AST, set[str]] = {}
        self._calls_to: dict[ast.AST, list[ast.Call]] = {}
        self._attributes: dict[ast.ClassDef, dict[str, list[ast.expr]]] = {}
        # What was found out about an expression. An empty entry stands there meanwhile: a name may come from itself.
        self._values: dict[ast.AST, list[ast.expr]] = {}
        self._functions: dict[ast.AST, list[Function]] = {}
        self._paths: dict[ast.AST, set[str]] = {}
        self._read(self.tree, self.tree)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]

    def _read(self, node: ast.AST, scope: ast.AST) -> None:
        self.nodes.append(node)
        self._bind(node, scope)
        inner = node if isinstance(node, SCOPES) else scope
        for child in ast.iter_child_nodes(node):
            self.parents[child] = node
            self._read(child, inner)

    def _bind(self, node: ast.AST, scope: ast.AST) -> None:
        match node:
            case ast.Import(names):
                for alias in names:
                    name = alias.asname or alias.name.split(".")[0]
                    self._add(scope, name, Binding("import", node, path=alias.name if alias.asname else name))
            case ast.ImportFrom(module, names, level):
                for alias in names:
                    path = "." * level + f"{module or ''}.{alias.name}"
                    self._add(scope, alias.asname or alias.name, Binding("import", node, path=path))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._add(scope, node.name, Binding("function", node))
            case ast.ClassDef():
                self._add(scope, node.name, Binding("other", node))
            case ast.Global(names):
                self.global_names.setdefault(scope, set()).update(names)
            case ast.Assign(targets, value):
                for target in targets:
                    self._bind_target(target, value, node, scope)
            case ast.AnnAssign(target, _, value) | ast.NamedExpr(target, value):
                self._bind_target(target, value, node, scope)
            case ast.withitem(value, target) if target is not None:
                self._bind_target(target, value, node, scope)
            case ast.For(target, value) | ast.AsyncFor(target, value) | ast.comprehension(target, value):
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        self._add(scope, part.id, Binding("iterates", node, value))
            case ast.arg():
                self._add(scope, node.arg, Binding("parameter", node))

    def _bind_target(self, target: ast.expr, value: ast.expr | None, node: ast.AST, scope: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self._add(scope, target.id, Binding("value" if value is not None else "other", node, value))
        elif isinstance(target, ast.Tuple | ast.List):
            pairs = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for i, element in enumerate(target.elts):
                self._bind_target(element, value.elts[i] if pairs else None, node, scope)  # type: ignore[union-attr]

    def _add(self, scope: ast.AST, name: str, binding: Binding) -> None:
        home = self.tree if name in self.global_names.get(scope, ()) else scope
        self.bindings.setdefault(home, {}).setdefault(name, []).append(binding)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function that the node stands in."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, FUNCTIONS)), None)

    def home(self, name: ast.Name) -> ast.AST | None:
        """The scope that gives the name its meaning, or None for a builtin."""
        scopes = [outer for outer in self.ancestors(name) if isinstance(outer, SCOPES)]
        for i, scope in enumerate(scopes):
            if i and isinstance(scope, ast.ClassDef):
                continue  # a method does not see the names of its class
            if name.id in self.global_names.get(scope, ()):
                return self.tree
            if name.id in self.bindings.get(scope, {}):
                return scope
        return None

    def lookup(self, name: ast.Name) -> list[Binding]:
        scope = self.home(name)
        return self.bindings[scope].get(name.id, []) if scope is not None else []

    def calls_to(self, function: ast.AST) -> list[ast.Call]:
        """The calls in this file that name the function."""
        if not self._calls_to:
            for call in self.calls:
                for called in self._called(call.func):
                    self._calls_to.setdefault(called, []).append(call)
        return self._calls_to.get(function, [])

    def _called(self, name: ast.expr) -> list[ast.AST]:
        if isinstance(name, ast.Attribute):
            return list(self.methods(name))
        if not isinstance(name, ast.Name):
            return []
        bindings = self.lookup(name)
        called = [b.node if b.how == "function" else b.value for b in bindings]
        made = [self._method(b.node, "__init__") for b in bindings if isinstance(b.node, ast.ClassDef)]
        return [node for node in [*called, *made] if isinstance(node, FUNCTIONS)]

    def classes(self, node: ast.expr) -> list[ast.ClassDef]:
        """The classes of this file that the expression is an object of: `self`, `Made()`, or a name for that."""
        nodes: list[ast.AST | None] = [node]
        if isinstance(node, ast.Name):
            bindings = self.lookup(node)
            nodes = [b.value for b in bindings if b.how == "value"]
            nodes += [b.node for b in bindings if b.how == "parameter"]
        found: list[ast.AST] = []
        for value in nodes:
            match value:
                case ast.Call(ast.Name() as made):
                    found += [b.node for b in self.lookup(made)]
                case ast.arg() if (method := self.function_of(value)) is not None and is_first(value, method):
                    found.append(self.parents[method])
        return [one for one in found if isinstance(one, ast.ClassDef)]

    def methods(self, node: ast.Attribute) -> list[Function]:
        found = [self._method(one, node.attr) for one in self.classes(node.value)]
        return [method for method in found if method is not None]

    def _method(self, one: ast.ClassDef, name: str) -> Function | None:
        functions = [s for s in one.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)]
        return next((function for function in functions if function.name == name), None)

    def attributes(self, one: ast.ClassDef) -> dict[str, list[ast.expr]]:
        """What the methods of a class give to attributes of their object: `self.enc = ...`."""
        if one in self._attributes:
            return self._attributes[one]
        found = self._attributes[one] = {}
        for node in ast.walk(one):
            match node:
                case ast.Assign([ast.Attribute(owner, name)], value) if one in self.classes(owner):
                    found.setdefault(name, []).append(value)
                case ast.AnnAssign(ast.Attribute(owner, name), _, ast.expr() as value) if one in self.classes(owner):
                    found.setdefault(name, []).append(value)
        return found

    def _given(self, node: ast.Attribute) -> list[ast.expr]:
        """What an attribute of an object of this file may be."""
        return [value for one in self.classes(node.value) for value in self.attributes(one).get(node.attr, [])]

    def arguments(self, parameter: ast.arg) -> list[ast.expr]:
        """What a parameter may be: the arguments of the calls in this file, and its default where they leave it out."""
        function = self.function_of(parameter)
        assert function is not None
        positional = [*function.args.posonlyargs, *function.args.args]
        named = {arg.arg: default for arg, default in zip(function.args.kwonlyargs, function.args.kw_defaults)}  # noqa: B905
        named |= {arg.arg: default for arg, default in zip(positional[::-1], function.args.defaults[::-1])}  # noqa: B905
        if isinstance(self.parents.get(function), ast.ClassDef):
            if is_first(parameter, function):
                return []  # the object itself
            positional = positional[1:]
        given: list[ast.expr | None] = []
        calls = self.calls_to(function)
        for call in calls:
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            index = positional.index(parameter) if parameter in positional else len(call.args)
            given.append(call.args[index] if index < len(call.args) else keywords.get(parameter.arg))
        if not calls or None in given:
            given.append(named.get(parameter.arg))
        return [value for value in given if value is not None]

    def _meanings(self, name: ast.Name) -> list[ast.expr]:
        """The expressions that give a name its value."""
        bindings = self.lookup(name)
        found = [b.value for b in bindings if b.how == "value" and b.value is not None]
        return found + [value for b in bindings if isinstance(b.node, ast.arg) for value in self.arguments(b.node)]

    def values(self, node: ast.expr) -> list[ast.expr]:
        """The expressions, no names among them, that the expression may stand for."""
        if node not in self._values:
            self._values[node] = []
            inner = [node]
            if isinstance(node, ast.IfExp):
                inner = [value for branch in (node.body, node.orelse) for value in self.values(branch)]
            elif isinstance(node, ast.Name):
                inner = [value for meaning in self._meanings(node) for value in self.values(meaning)]
            elif isinstance(node, ast.Attribute) and (given := self._given(node)):
                inner = [value for one in given for value in self.values(one)]
            self._values[node] = list(dict.fromkeys(inner))
        return self._values[node]

    def functions(self, node: ast.expr) -> list[Function]:
        """The functions of this file that the expression may stand for; `partial(f, ...)` stands for `f`."""
        if node not in self._functions:
            self._functions[node] = []
            found: list[Function] = []
            inner: list[ast.expr] = []
            match node:
                case ast.Lambda():
                    found = [node]
                case ast.IfExp(_, first, second):
                    inner = [first, second]
                case ast.Call(func, [wrapped, *_]) if self.stands_for(func, {"functools.partial"}):
                    inner = [wrapped]
                case ast.Name():
                    nodes = [binding.node for binding in self.lookup(node)]
                    found = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
                    inner = self._meanings(node)
                case ast.Attribute():
                    found, inner = self.methods(node), self._given(node)
            found = found + [function for value in inner for function in self.functions(value)]
            self._functions[node] = list(dict.fromkeys(found))
        return self._functions[node]

    def paths(self, node: ast.expr) -> set[str]:
        """The dotted paths that the expression may stand for; the value of a call is its path and `()`."""
        if node not in self._paths:
            self._paths[node] = set()
            self._paths[node] = {path for path in self._found_paths(node) if len(path) <= MAX_PATH}
        return self._paths[node]

    def _found_paths(self, node: ast.expr) -> set[str]:
        inner: list[ast.expr] = []
        match node:
            case ast.Name():
                bindings = self.lookup(node)
                if not bindings:  # a builtin, or out of `from multiprocessing import *`
                    stars = self.bindings.get(self.tree, {}).get("*", [])
                    return {node.id, *(star.path.removesuffix("*") + node.id for star in stars)}
                found = {b.path for b in bindings if b.how == "import"}
                return found.union(*(self.paths(value) for value in self._meanings(node)))
            case ast.Attribute(value, attribute):
                inner = self._given(node)
                found = {f"{path}.{attribute}" for path in self.paths(value)}
                return found.union(*(self.paths(given) for given in inner))
            case ast.Call(func):
                returned = [value for function in self.functions(func) for value in self.returned(function)]
                return {f"{path}()" for path in self.paths(func)}.union(*(self.paths(value) for value in returned))
            case ast.IfExp(_, first, second):
                inner = [first, second]
            case ast.BoolOp(_, values):
                inner = values
            case ast.NamedExpr(_, value):
                inner = [value]
        return set().union(*(self.paths(value) for value in inner))

    def returned(self, function: Function) -> list[ast.expr]:
        """What the function returns."""
        if isinstance(function, ast.Lambda):
            return [function.body]
        returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        return [node.value for node in returns if node.value is not None and self.function_of(node) is function]

    def stands_for(self, node: ast.expr, paths: set[str]) -> bool:
        return not paths.isdisjoint(self.paths(node))

    def text(self, node: ast.AST) -> str:
        """The node as it is written."""
        return ast.get_source_segment(self.source, node) or ""


def is_first(parameter: ast.arg, function: Function) -> bool:
    """Whether this is the first parameter, which in a method is the object."""
    first = [*function.args.posonlyargs, *function.args.args][:1]
    is_static = "staticmethod" in map(ast.unparse, getattr(function, "decorator_list", []))
    return bool(first) and first[0] is parameter and not is_static


def too_deep(filename: str) -> SourceError:
    return SourceError(f"`{filename}` is nested too deeply to be read")


def is_main_guard(node: ast.AST) -> bool:
    """Whether this is `if __name__ == "__main__":`, alone or as one of several conditions."""
    if not isinstance(node, ast.If):
        return False
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    for test in tests:
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            sides = {ast.unparse(test.left), ast.unparse(test.comparators[0])}
            if sides == {"__name__", "'__main__'"}:
                return True
    return False
