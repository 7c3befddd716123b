"""Rewrites statements that cannot be traced as calls that can."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from corsac.fx._symbolic_trace import Tracer
from corsac.fx.graph import Graph

__all__ = ["AST_Rewriter", "RewritingTracer"]


class AST_Rewriter(ast.NodeTransformer):
    """Rewrites the source of functions: ``assert c, m`` becomes ``torch._assert(c, m)``, and ``y: T = v``
    becomes ``y = annotate(v, T)``.

    ``torch`` and ``annotate`` are looked up in the function's globals. Derived classes rewrite more by
    methods like those of :class:`ast.NodeTransformer`.
    """

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """The function with its source rewritten: with the same globals, defaults, closure, annotations and
        source lines.

        Raises:
            OSError: the source is not available.
        """
        function = fn.__func__ if isinstance(fn, MethodType) else fn
        lines, start = inspect.getsourcelines(function)
        tree = _parsed("".join(lines), max(start, 1))
        tree = ast.fix_missing_locations(self.visit(tree))
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise AssertionError(f"Expected a function definition, got {type(definition).__name__}")
        inner = inspect.unwrap(function)
        free = inner.__code__.co_freevars
        filename = inspect.getsourcefile(function) or "<rewritten>"
        module = _within_closure(tree, definition.name, free)
        namespace = dict(inner.__globals__)
        exec(compile(module, filename, "exec"), namespace)
        made = namespace[_FACTORY](*[None] * len(free))
        if not isinstance(made, FunctionType) or inner is not function:
            # The decorators have been applied again.
            return made
        return _like(made.__code__, inner)

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        """Rewrite ``assert`` as a call of ``torch._assert``, which is recorded."""
        message = node.msg or ast.Constant(value="")
        function = ast.Attribute(ast.Name("torch", ast.Load()), "_assert", ast.Load())
        call = ast.Expr(ast.Call(function, [node.test, message], []))
        return ast.copy_location(call, node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Rewrite an annotated assignment as an assignment of an annotated value."""
        if node.value is None:
            return node
        call = ast.Call(ast.Name("annotate", ast.Load()), [node.value, node.annotation], [])
        return ast.copy_location(ast.Assign([node.target], call), node)


def _parsed(source: str, start: int) -> ast.Module:
    """Parse a definition that starts in line ``start`` and may be indented."""
    if not source[:1].isspace():
        return ast.increment_lineno(ast.parse(source), start - 1)
    # Removing the indentation would change strings of several lines.
    outer = ast.parse(f"if True:\n{source}").body[0]
    tree = ast.Module(outer.body, [])  # type: ignore[attr-defined]
    return ast.increment_lineno(tree, start - 2)


_FACTORY = "_make_rewritten"


def _within_closure(tree: ast.Module, name: str, free: tuple[str, ...]) -> ast.Module:
    """A module with an outer function that has the free variables, and defines and returns the function."""
    parameters = ast.arguments([], [ast.arg(v) for v in free], None, [], [], None, [])
    result = ast.Return(ast.Name(name, ast.Load()))
    factory = ast.parse(f"def {_FACTORY}(): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.args, factory.body = parameters, [*tree.body, result]
    return ast.fix_missing_locations(ast.Module([factory], []))


def _like(code: CodeType, function: FunctionType) -> FunctionType:
    """A copy of a function with other code."""
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname=function.__qualname__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = copy.copy(function.__kwdefaults__)
    made.__annotations__ = dict(function.__annotations__)
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    made.__doc__ = function.__doc__
    made.__dict__.update(function.__dict__)
    return made


class RewritingTracer(Tracer):
    """A tracer that rewrites the program first, so that its assertions and annotated assignments become part
    of the graph. Modules are not changed: copies of them are traced, which share parameters and buffers."""

    def trace(
        self,
        root: torch.nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """Trace ``root``, rewritten."""
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(fn: torch.nn.Module | Callable[..., Any]) -> torch.nn.Module | Callable[..., Any]:
    """Rewrite a function, or a module with all modules in it."""
    if not isinstance(fn, torch.nn.Module):
        return AST_Rewriter().rewrite(fn)
    return _rewritten_module(fn, {})


def _rewritten_module(
    module: torch.nn.Module, done: dict[torch.nn.Module, torch.nn.Module]
) -> torch.nn.Module:
    """A shallow copy with a rewritten forward and rewritten children. Modules of ``torch.nn`` are kept, since
    they are called, not traced."""
    if module in done:
        return done[module]
    made = copy.copy(module)
    done[module] = made
    made.__dict__ = dict(module.__dict__)
    for table in ("_parameters", "_buffers"):
        made.__dict__[table] = dict(module.__dict__[table])
    children = module.__dict__["_modules"].items()
    made.__dict__["_modules"] = {
        name: child if child is None else _rewritten_module(child, done) for name, child in children
    }
    cls = type(module)
    if cls.__module__.startswith("torch.nn"):
        return module if not made.__dict__["_modules"] else made
    forward = module.__dict__.get("forward", cls.forward)
    try:
        rewritten = AST_Rewriter().rewrite(forward)
    except (OSError, TypeError):  # The source is not available.
        return made
    made.__dict__.pop("forward", None)
    namespace = {"forward": rewritten, "__module__": cls.__module__}
    made.__class__ = type(cls.__name__, (cls,), namespace)
    return made
