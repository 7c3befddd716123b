"""Decomposition: calls replaced by traced rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from corsac.fx import Node, Proxy
from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Transformer
from corsac.passes._budget import Budget, current_budget
from corsac.passes._derive import OF_VALUE
from corsac.passes._registry import registered
from corsac.passes._report import Report, Site
from corsac.passes._signatures import accepts, of_function, of_method, without_defaults


@registered
def decompose(
    target: GraphModule,
    rules: Mapping[Any, Callable[..., Any]],
    *,
    budget: Budget | None = None,
) -> Report:
    """Replace calls by the operators of a rule.

    Args:
        target: the module to change.
        rules: maps a function, the name of a method, or a class of modules to a function of the
            same arguments, which is traced in the place of the call; for a class, the module is its
            first argument. Arguments that the rule has no parameters for are left out where they
            only repeat defaults. A rule that returns ``NotImplemented`` leaves the call as it is.
            Calls inside rules are not decomposed again.
        budget: largest number of calls to replace; see :class:`Budget`.

    New nodes have the source line, stack trace and metadata of the call; the one with its value has
    its name. The report lists every call that there is a rule for.

    Example::

        decompose(gm, {torch.nn.functional.relu: lambda x: (x > 0) * x})
    """
    before = len(target.graph.nodes)
    retrace = _Decomposition(target, rules, current_budget(budget))
    made = retrace.transform()
    report = Report("decomposition", tuple(retrace.sites), before, len(made.graph.nodes))
    if report.changed:
        target.graph = made.graph
        target.recompile()
    return report


class _Decomposition(Transformer):
    def __init__(
        self, gm: GraphModule, rules: Mapping[Any, Callable[..., Any]], budget: Budget | None
    ) -> None:
        super().__init__(gm)
        self.sites: list[Site] = []
        self._rules, self._budget = rules, budget

    def run_node(self, n: Node) -> Any:
        key: Any = n.target
        if n.op == "call_module":
            key = type(self.fetch_attr(n.target))
        rule = self._rules.get(key) if n.op.startswith("call_") else None
        result = NotImplemented if rule is None else self._apply(rule, n)
        if result is NotImplemented:
            result = super().run_node(n)
        if isinstance(result, Proxy) and n.op != "output":
            node = result.node
            # A rule may return an input, which has its own name.
            if node.name != n.name and node not in self._named:
                node._rename(n.name)
            self._named.add(node)
            for key, value in n.meta.items():
                node.meta.setdefault(key, value)
        return result

    @property
    def _named(self) -> set[Node]:
        return self.__dict__.setdefault("_named_nodes", set())

    def _apply(self, rule: Callable[..., Any], n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.op == "call_module":
            module = self.fetch_attr(n.target)
            if not isinstance(module, nn.Module):
                return NotImplemented
            args = (module, *args)
        label = n._pretty_print_target(n.target)
        if self._budget is not None and self._budget.left == 0:
            self.sites.append(Site(n.name, label, None, "the budget of changes is used up"))
            return NotImplemented
        args, kwargs = _taken_by(rule, n, args, kwargs)
        last = next(iter(reversed(self.new_graph.nodes)), None)
        result = rule(*args, **kwargs)
        for node in reversed(self.new_graph.nodes):
            if node is last:
                break
            for key, value in n.meta.items():
                if key not in OF_VALUE:
                    node.meta.setdefault(key, value)
        if result is NotImplemented:
            self.sites.append(Site(n.name, label, None, "the rule leaves it as it is"))
            return result
        if self._budget is not None:
            self._budget.take()
        name = getattr(rule, "__name__", str(rule))
        self.sites.append(Site(n.name, label, name, None))
        return result


def _taken_by(
    rule: Callable[..., Any], n: Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the call ``n``; if ``rule`` does not take them, without those that only repeat
    defaults: ``relu(x, inplace=False)`` as ``relu(x)``."""
    taken = of_function(rule)
    if n.op == "call_module" or taken is None or accepts(taken, args, kwargs):
        return args, kwargs
    called = of_method(n.target) if n.op == "call_method" else of_function(n.target)
    fewer = without_defaults(called, args, kwargs)
    return fewer if accepts(taken, *fewer) else (args, kwargs)
