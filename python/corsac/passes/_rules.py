"""Rewrite rules as data, and the laws of algebra."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import corsac.fx
from corsac import _core
from corsac.fx import Graph, Node
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._registry import registered
from corsac.passes._report import Report, Site
from corsac.passes._target import drop_unused, graph_of


class Match(Mapping[str, Any]):
    """A place where the pattern of a rule was found: maps its variables, by name, to nodes or literals.

    Attributes:
        roots: the nodes that would be replaced.
    """

    def __init__(self, values: dict[str, Any], roots: list[Node]) -> None:
        self._values = values
        self.roots = roots

    @property
    def root(self) -> Node:
        """The node that would be replaced; the first one where there are several."""
        return self.roots[0]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Match({self._values}, roots={self.roots})"


Condition = Callable[[Match], bool | str]
Build = Callable[[Match], Callable[..., Any] | Graph | GraphModule | str | None]


class Rule:
    """A rewrite rule: replaces the computation of ``pattern`` by that of ``replacement``.

    Both are functions, which are traced, or graphs. The arguments of the two go together by name,
    or else by position; they stand for anything, tensors and literals alike, and for the same
    thing wherever they are used. Literals in the pattern match numbers of the same value. A
    pattern that returns a tuple replaces several values at once.

    Operators match however they are spelled: ``torch.add``, ``x + y`` and ``x.add(y)`` are the same,
    and so are arguments by position and by keyword.

    Args:
        pattern: the program to look for.
        replacement: the program that takes its place. None with ``build``.
        condition: called at each match, with a :class:`Match`; the rule is applied if it returns
            True. A string is the reason why not.
        name: name of the rule in reports; the name of ``pattern`` by default.
        build: makes the replacement for each match: called with a :class:`Match`, after
            ``condition``, it returns a function or a graph with the arguments of ``pattern``, or None
            or a string to leave the match alone. An exception it raises ends rewriting.

        settings: the settings in which modules have to agree with those of the pattern, by name;
            by default all that their class declares (``__constants__``).

    A pattern may call modules of ``torch.nn``: it is an ``nn.Module`` then. They stand for all modules
    of their class with the same settings, without hooks; weights are not compared. A replacement that
    is an ``nn.Module`` uses the matched modules under the same names: ``self.linear.weight`` is the
    weight of the module that ``self.linear`` of the pattern stands for. A replacement that is a graph
    may also name modules and attributes of the module that is rewritten.

    Raises:
        ValueError: if the traced program cannot be expressed as a rule.
    """

    def __init__(
        self,
        pattern: Callable[..., Any] | Graph | GraphModule,
        replacement: Callable[..., Any] | Graph | GraphModule | None = None,
        *,
        condition: Condition | None = None,
        name: str | None = None,
        build: Build | None = None,
        settings: Iterable[str] | None = None,
    ) -> None:
        if name is None:
            name = getattr(pattern, "__name__", "rule")
        # A graph holds its module weakly.
        module = None if isinstance(pattern, _core.Graph) else _program(pattern)
        graph = pattern if module is None else module.graph
        self._rule = _core.rule_from_graphs(
            name,
            graph,
            None if replacement is None else _traced(replacement),
            condition,
            None if build is None else _building(build),
            _modules(graph, settings),
        )
        if isinstance(replacement, torch.nn.Module):
            _check_names(name, graph, _traced(replacement))

    @classmethod
    def _of(cls, rule: Any) -> Rule:
        made = cls.__new__(cls)
        made._rule = rule
        return made

    @property
    def name(self) -> str:
        """Name of the rule in reports."""
        return self._rule.name

    @property
    def variables(self) -> list[str]:
        """The names of the variables of the rule."""
        return self._rule.variables

    def __repr__(self) -> str:
        return f"<Rule {self.name}>"


def _building(build: Build) -> Callable[[Match], Graph | str | None]:
    """``build`` with its result traced into a graph."""

    def built(match: Match) -> Graph | str | None:
        answer = build(match)
        return answer if answer is None or isinstance(answer, str) else _traced(answer)

    return built


def _traced(program: Callable[..., Any] | Graph | GraphModule) -> Graph:
    if isinstance(program, _core.Graph):
        return program
    return _program(program).graph


def _program(program: Callable[..., Any] | GraphModule) -> GraphModule:
    return program if isinstance(program, GraphModule) else corsac.fx.symbolic_trace(program)


def _modules(
    graph: Graph, settings: Iterable[str] | None
) -> dict[str, tuple[str, list[tuple[str, Any]]]]:
    """The classes of the ``torch.nn`` modules that ``graph`` calls, and those of their settings that
    are compared."""
    owner, found = graph.owning_module, {}
    wanted = None if settings is None else set(settings)
    for node in graph.find_nodes(op="call_module") if owner is not None else ():
        module = owner.get_submodule(node.target)
        cls = type(module)
        if getattr(torch.nn, cls.__name__, None) is not cls:
            continue
        names = getattr(cls, "__constants__", ()) if wanted is None else wanted
        own = [(name, getattr(module, name)) for name in sorted(names) if hasattr(module, name)]
        found[node.target] = cls.__name__, own
    return found


def _check_names(rule: str, pattern: Graph, replacement: Graph) -> None:
    """Check that a replacement which is a module uses only modules of the pattern."""
    known = {node.target for node in pattern.find_nodes(op="call_module")}
    for op in ("call_module", "get_attr"):
        for node in replacement.find_nodes(op=op):
            if not any(f"{node.target}.".startswith(f"{name}.") for name in known):
                raise ValueError(
                    f"rule {rule}: the replacement uses its own {node.target}, which the pattern does "
                    "not call: a replacement can use the modules of the pattern"
                )


_MISSING = object()


def _check_places(target: GraphModule | Graph, places: Iterable[tuple[str, str]]) -> None:
    """Check that ``target`` has the modules and attributes that replacements name."""
    owner = target if isinstance(target, torch.nn.Module) else target.owning_module
    for rule, path in places:
        found: Any = owner
        for name in path.split("."):
            found = getattr(found, name, _MISSING)
        if found is _MISSING:
            raise ValueError(f"rule {rule}: there is no {path} in what is rewritten")


class Rules(Sequence[Rule]):
    """Rules that are matched together, in one traversal of a graph.

    If several match at one node, the first is applied.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._set: Any = None

    @classmethod
    def parse(cls, text: str) -> Rules:
        """Read rules from text, one on a line; ``docs/rules.md`` describes the language::

            Rules.parse('''
            double_negation: neg(neg(?x)) => ?x
            sub_zero: sub(?x, 0) => ?x  if same_dtype(?x, result)
            ''')

        Raises:
            ValueError: with line and column, if the text is not a list of rules.
        """
        return cls(Rule._of(rule) for rule in _core.parse_rules(text))

    def __getitem__(self, index: Any) -> Any:
        found = self._rules[index]
        return Rules(found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        return len(self._rules)

    def __add__(self, other: Iterable[Rule]) -> Rules:
        return Rules((*self._rules, *other))

    def __repr__(self) -> str:
        return f"Rules({[rule.name for rule in self._rules]})"

    def _compiled(self) -> Any:
        if self._set is None:
            self._set = _core.RuleSet([rule._rule for rule in self._rules])
        return self._set


@dataclass(frozen=True, slots=True)
class RewriteReport(Report):
    """A :class:`Report` with the rule of each site.

    Attributes:
        rules: the name of the rule, for each site.
    """

    rules: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of applications of each rule."""
        counts: dict[str, int] = {}
        for site, rule in zip(self.sites, self.rules, strict=True):
            if site.applied:
                counts[rule] = counts.get(rule, 0) + 1
        return counts

    def _cells(self) -> list[tuple[str, ...]]:
        return [(rule, *row) for rule, row in zip(self.rules, Report._cells(self), strict=True)]


def _run(
    name: str, target: GraphModule | Graph, transform: Callable[[Any], list[Any]]
) -> RewriteReport:
    graph = graph_of(target)
    before = len(graph.nodes)
    called = {node.target for node in graph.find_nodes(op="call_module")}
    try:
        raw = transform(graph)
    except BaseException:
        # Rewrites made before a condition raised stay.
        if isinstance(target, GraphModule):
            target.recompile()
        raise
    sites = tuple(Site(*site) for *site, _ in raw)
    report = RewriteReport(name, sites, before, len(graph.nodes), tuple(site[-1] for site in raw))
    if report.changed and isinstance(target, GraphModule):
        drop_unused(target, called - {n.target for n in graph.find_nodes(op="call_module")})
        target.recompile()
    return report


@registered
def rewrite(
    target: GraphModule | Graph,
    rules: Rules | Iterable[Rule] | str,
    *,
    limit: int | None = None,
    budget: Budget | None = None,
) -> RewriteReport:
    """Apply rewrite rules until none matches any more.

    Args:
        target: the module or graph to change.
        rules: rules, or their text.
        limit: largest number of rewrites. They are made in a fixed order, so that a wrong one is
            found by bisection.
        budget: as ``limit``, shared with other passes; by default that of the block
            (:func:`rewrite_budget`).

    A rule is applied only where it changes no visible write and no sharing of storage that can be
    observed. The report lists every place where a pattern matched: applied, or the reason why not.
    Conditions on types and shapes need ``node.meta["tensor_meta"]``, as ``ShapeProp`` writes it.
    """
    if isinstance(rules, str):
        rules = Rules.parse(rules)
    elif not isinstance(rules, Rules):
        rules = Rules(rules)
    compiled = rules._compiled()
    _check_places(target, compiled.places())
    budget = current_budget(budget)
    return _run("rewrite", target, lambda graph: compiled.apply(graph, Match, limit, budget))


@registered
def simplify(
    target: GraphModule | Graph,
    *,
    fast_math: bool = False,
    limit: int | None = None,
    budget: Budget | None = None,
) -> RewriteReport:
    """Simplify by the laws of algebra.

    By default only by laws that hold to the last bit for every float, NaN, infinities and -0.0
    included. With ``fast_math`` also by those that hold up to rounding: constants are combined,
    and decomposed activations, normalisations, softmax, linear layers and attention become one
    operator again. ``docs/rules.md`` has both tables.

    Args:
        target: the module or graph to change.
        fast_math: whether results may differ in rounding, and where NaN, infinities or overflow
            occur.
        limit: largest number of rewrites.
        budget: as ``limit``, shared with other passes; by default that of the block
            (:func:`rewrite_budget`).

    Laws that depend on types or shapes need ``node.meta["tensor_meta"]``, as ``ShapeProp`` writes
    it; the report lists those that were not applied, with the reason.
    """
    budget, laws = current_budget(budget), _laws(fast_math)
    return _run("simplify", target, lambda graph: laws.apply(graph, Match, limit, budget))


_laws = functools.cache(_core.simplification_laws)
