"""Interpreters, which run a graph node by node, and transformers, which run it on proxies."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._logging import trace_structured
from torch.fx import config
from torch.fx import traceback as fx_traceback
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.hub import tqdm

from ._lazy_graph_module import _make_graph_module
from ._module_attributes import _registered_module
from ._packages import expect_ours
from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_aggregate, map_arg
from .proxy import Proxy

if TYPE_CHECKING:
    from .node import Argument, Target

log = logging.getLogger(__name__)

__all__ = ["Interpreter", "Transformer"]


class _NodeText:
    """A node as a line of a debug log; formatted only when the line is written."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def __str__(self) -> str:
        node = self._node
        module = getattr(node.target, "__module__", "")
        callee = getattr(node.target, "__name__", node.target)
        arguments = [*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())]
        return f"{node.name} = {f'{module}.' if module else ''}{callee}({', '.join(arguments)})"


class Interpreter:
    """Runs the graph of a module node by node, on given values.

    A subclass overrides the steps to change; the calls nest like this::

        run()
            +-- run_node
                +-- placeholder()
                +-- get_attr()
                +-- call_function()
                +-- call_method()
                +-- call_module()
                +-- output()

    Example, measuring each call of a function::

        class Timed(Interpreter):
            def call_function(self, target, args, kwargs):
                start = time.perf_counter()
                result = super().call_function(target, args, kwargs)
                print(target, time.perf_counter() - start)
                return result

        Timed(gm).run(x)

    Args:
        module: the module whose graph is run, and which supplies parameters and submodules.
        garbage_collect_values: drop each value after its last use. Otherwise all values can be read from
            ``env`` after the run.
        graph: run this graph in place of ``module.graph``.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        expect_ours(module if graph is None else graph, type(self).__name__)
        self.module = module
        self.graph: Any = graph if graph is not None else self.module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        if self.garbage_collect_values:
            self.user_to_last_uses: dict[Node, list[Node]] = self.graph._last_uses()

    @functools.cached_property
    def submodules(self) -> dict[str, torch.nn.Module]:
        """All modules in :attr:`module` by qualified name."""
        return dict(self.module.named_modules())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Run the graph and return its result.

        Args:
            *args: the values for the placeholders, in order.
            initial_env: values of nodes known in advance; these nodes are not run.
            enable_io_processing: apply the graph's ``process_inputs`` and ``process_outputs``, as calling the
                module does.

        Returns:
            The result, or ``None`` if the graph has no output node.
        """
        self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        output = self._run_nodes(self._progress(self.graph.nodes))
        if output is None:
            return None
        result = self.env[output]
        return self.graph.process_outputs(result) if enable_io_processing else result

    def _run_nodes(self, nodes: Any) -> Node | None:
        """Run ``nodes`` in a loop up to the output node, and return its value."""
        env = self.env
        run_node = self._node_runner()
        last_uses = self.user_to_last_uses if self.garbage_collect_values else {}
        for node in nodes:
            if node in env:
                continue
            try:
                env[node] = run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    self._explain(error, node)
                raise
            if env is not self.env:
                env = self.env  # replaced by an overridden method
            for dead in last_uses.get(node, ()):
                del env[dead]
            if node.op == "output":
                return node
        return None

    def _node_runner(self) -> Callable[[Node], Any]:
        """:meth:`run_node`, or a faster equivalent.

        A plain run spends more time on checking that nothing is overridden, logged or preserved than on the
        nodes. Here that is checked once.
        """
        cls = type(self)
        plain = (
            "run_node" not in self.__dict__
            and all(getattr(cls, name) is method for name, method in _RUN_NODE_PARTS)
            and not log.isEnabledFor(logging.DEBUG)
        )
        if not plain:
            return self.run_node
        handlers = self._handlers()

        def run_node(node: Node) -> Any:
            lookup = self.env.__getitem__
            try:
                args = map_arg(node.args, lookup)
                kwargs = map_arg(node.kwargs, lookup)
            except KeyError:
                args, kwargs = self.fetch_args_kwargs_from_env(node)
            return handlers[node.op](node.target, args, kwargs)

        if not fx_traceback.has_preserved_node_meta():
            return run_node

        pass_name = f"Interpreter_{type(self).__name__}"

        def run_node_with_meta(node: Node) -> Any:
            # ``set_current_meta``, without the two context managers around every node.
            meta = node.meta
            if not meta:
                return run_node(node)
            outer = fx_traceback.current_meta
            current = meta.copy()
            current["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
            fx_traceback.current_meta = current
            try:
                return run_node(node)
            finally:
                fx_traceback.current_meta = outer

        return run_node_with_meta

    def _handlers(self) -> dict[str, Callable[..., Any]]:
        """The methods that run nodes, by opcode."""
        return {op: getattr(self, op) for op in _OPS}

    def _progress(self, nodes: Any) -> Any:
        """``nodes``, with a progress bar if enabled in the settings."""
        if config.disable_progress:
            return nodes
        names = str(list(nodes)) if config.verbose_progress else ""
        return tqdm(nodes, total=len(nodes), desc=f"{self.name}: {names}", position=0, delay=0)

    def _explain(self, error: Exception, node: Node) -> None:
        """Add to the message of ``error`` the node that raised it and its source."""
        message = f"While executing {node.format_node()}"
        if error.args:
            message = f"{error.args[0]}\n\n{message}"
        message += f"\nOriginal traceback:\n{node.stack_trace or node.source}"
        if isinstance(self.module, GraphModule) and isinstance(self.module.graph, Graph):
            trace_structured(
                "artifact",
                metadata_fn=lambda: {"name": "fx_interpreter_error", "encoding": "string"},
                payload_fn=lambda: (
                    f"{message}\nGraphModule: "
                    f"{self.module.print_readable(print_output=False, include_stride=True)}"
                ),
            )
        message += (
            "\nUse tlparse to see full graph. "
            "(https://github.com/pytorch/tlparse?tab=readme-ov-file#tlparse-parse-structured-pt2-logs)"
        )
        error.args = (message, *error.args[1:])
        if isinstance(error, KeyError):
            # A KeyError prints the repr of its message.
            raise RuntimeError(*error.args) from error

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run the graph on a list of arguments, which is emptied.

        Only the interpreter then holds the arguments, so that each is freed after its last use.

        Raises:
            RuntimeError: the list does not have one value for each placeholder.
        """
        placeholders = self.graph.find_nodes(op="placeholder")
        if len(args_list) != len(placeholders):
            detail = (
                "extra arguments" if len(args_list) > len(placeholders) else "missing arguments"
            )
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(placeholders)} arguments for placeholders "
                f"but received {len(args_list)} ({detail})"
            )
        env = dict(zip(placeholders, args_list, strict=True))
        args_list.clear()
        return self.run(initial_env=env)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{self.__class__.__name__}"):
            yield

    def run_node(self, n: Node) -> Any:
        """Run the node ``n`` on the values in ``env`` and return the result.

        Calls the method named after the node's opcode.
        """
        log.debug("run_node %s", _NodeText(n))
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            if not isinstance(args, tuple):
                raise AssertionError(f"Expected args to be tuple, got {type(args)}")
            if not isinstance(kwargs, dict):
                raise AssertionError(f"Expected kwargs to be dict, got {type(kwargs)}")
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The next argument of :meth:`run`; all remaining ones for ``*args``.

        Each call takes one, from an iterator over the arguments.

        Args:
            target: the name of the parameter.
            args: holds the default value, if there is one.
            kwargs: unused.

        Raises:
            RuntimeError: no arguments remain, and there is no default value.
        """
        _check_name(target)
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration as stop:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from stop

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The attribute of the module with the qualified name ``target``."""
        _check_name(target)
        return self.fetch_attr(target)

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function ``target`` and return the result."""
        if isinstance(target, str):
            raise AssertionError("target should not be a string for call_function")
        return target(*args, **kwargs)

    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the method named ``target`` of ``args[0]`` and return the result."""
        receiver, *rest = args
        _check_name(target)
        return getattr(receiver, target)(*rest, **kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the submodule with the qualified name ``target`` and return the result."""
        _check_name(target)
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the graph: ``args[0]``."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute of the module with the qualified name ``target``.

        Raises:
            RuntimeError: there is none; the message contains the missing part of the name.
        """
        value: Any = self.module
        names = target.split(".")
        for depth, name in enumerate(names):
            child = _registered_module(value, name)
            if child is None:
                if not hasattr(value, name):
                    raise RuntimeError(
                        f"Node referenced nonexistent target {'.'.join(names[: depth + 1])}"
                    )
                child = getattr(value, name)
            value = child
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of ``n`` with the values from ``env`` in place of nodes."""
        args = self.map_nodes_to_values(n.args, n)
        if not isinstance(args, tuple):
            raise AssertionError(f"Expected args to be tuple, got {type(args)}")
        kwargs = self.map_nodes_to_values(n.kwargs, n)
        if not isinstance(kwargs, dict):
            raise AssertionError(f"Expected kwargs to be dict, got {type(kwargs)}")
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """``args`` with the values from ``env`` in place of nodes.

        Args:
            args: nested tuples, lists, dicts and slices.
            n: the node with these arguments, for the error message.

        Raises:
            RuntimeError: a node has no value.
        """

        def load(argument: Node) -> Any:
            if argument not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {argument}! Run Graph.lint() "
                    f"to diagnose such issues"
                )
            return self.env[argument]

        return map_arg(args, load)


_OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")

# Methods that run a node; a class that overrides none of them can use the faster equivalent.
_RUN_NODE_PARTS = tuple(
    (name, getattr(Interpreter, name))
    for name in (
        "run_node",
        "_set_current_node",
        "fetch_args_kwargs_from_env",
        "map_nodes_to_values",
    )
)


def _check_name(target: Any) -> None:
    if not isinstance(target, str):
        raise AssertionError(f"Expected target to be str, got {type(target)}")


class TransformerTracer(Tracer):
    """Appends to the new graph of a :class:`Transformer`; submodules stay calls."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs: dict[Any, str] = {}

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """An interpreter that makes a new module: it runs the graph on proxies.

    A subclass overrides the translation of a node, in terms of the values it computes::

        class WithoutDropout(Transformer):
            def call_module(self, target, args, kwargs):
                if isinstance(self.submodules[target], torch.nn.Dropout):
                    return args[0]
                return super().call_module(target, args, kwargs)

        transformed = WithoutDropout(gm).transform()

    Args:
        module: the graph module to transform; it is not changed.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer: Tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Proxy:
        """A proxy for a new placeholder, with the same default value."""
        _check_name(target)
        default_value = next(iter(args)) if args else inspect.Signature.empty
        node = self.new_graph.placeholder(target, default_value=default_value)
        self.tracer._note_origin(node)
        return Proxy(node, self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """A proxy for a new ``get_attr`` node."""
        _check_name(target)
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A proxy for a call of the submodule; the tracer decides whether to trace into it."""
        _check_name(target)
        submodule = self.fetch_attr(target)
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A proxy for a call of the function, which is not traced into."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def _run_nodes(self, nodes: Any) -> Node | None:
        try:
            return super()._run_nodes(nodes)
        finally:
            self.tracer._succeed(None)

    def _node_runner(self) -> Callable[[Node], Any]:
        run_node, succeed = super()._node_runner(), self.tracer._succeed

        def run_and_say_where_from(node: Node) -> Any:
            succeed(node)
            return run_node(node)

        return run_and_say_where_from

    def _handlers(self) -> dict[str, Callable[..., Any]]:
        handlers = super()._handlers()
        cls, tracer = type(self), self.tracer
        if (
            cls.call_module is not Transformer.call_module
            or cls.fetch_attr is not Interpreter.fetch_attr
            or type(tracer) is not TransformerTracer
            or not {"call_module", "fetch_attr"}.isdisjoint(self.__dict__)
            or not {"call_module", "is_leaf_module", "create_proxy"}.isdisjoint(tracer.__dict__)
        ):
            return handlers
        # Nothing is overridden: every submodule is a leaf, called by its first name.
        look_inside, submodules, record = (
            handlers["call_module"],
            self.submodules,
            tracer.create_proxy,
        )

        def call_module(target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
            if target in submodules:
                return record("call_module", target, args, kwargs)
            return look_inside(target, args, kwargs)

        return handlers | {"call_module": call_module}

    def transform(self) -> GraphModule:
        """Run the graph on proxies and return a module with the graph that they recorded.

        A node's metadata and source location are copied to the nodes made while it runs.
        """
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            returned = map_aggregate(
                result, lambda value: value.node if isinstance(value, Proxy) else value
            )
            new_output = self.new_graph.output(returned)
            old_output = next(iter(reversed(self.graph.nodes)))
            if old_output.op != "output":
                raise AssertionError(f"Expected output node, got op={old_output.op}")
            for key, value in old_output.meta.items():
                new_output.meta[key] = value
            self.tracer._succeed(old_output)
            self.tracer._note_origin(new_output)
            self.tracer._succeed(None)
        return _make_graph_module(self.module, self.new_graph)
