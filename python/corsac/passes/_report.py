"""What a pass did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a pass did something, or could have.

    Attributes:
        node: the name of the node.
        target: what it calls.
        other: the node or module that took its place, where there is one.
        reason: why nothing was done; None where something was.
    """

    node: str
    target: str
    other: str | None
    reason: str | None

    @property
    def applied(self) -> bool:
        """Whether the pass did something here."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Report:
    """What a pass did, and where it did nothing, why. True if the graph has changed.

    Attributes:
        name: the pass.
        sites: every place that the pass looked at more closely.
        nodes_before: how many nodes the graph had.
        nodes_after: how many it has now.
    """

    name: str
    sites: tuple[Site, ...]
    nodes_before: int
    nodes_after: int

    @property
    def changed(self) -> bool:
        """Whether the graph has changed."""
        return any(site.applied for site in self.sites)

    @property
    def count(self) -> int:
        """At how many sites something was done."""
        return sum(site.applied for site in self.sites)

    @property
    def applied(self) -> tuple[Site, ...]:
        """The sites where something was done."""
        return tuple(site for site in self.sites if site.applied)

    @property
    def kept(self) -> tuple[Site, ...]:
        """The sites where nothing was done, each with its reason."""
        return tuple(site for site in self.sites if not site.applied)

    def __bool__(self) -> bool:
        return self.changed

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.count} of {len(self.sites)} sites, "
            f"{self.nodes_before} -> {self.nodes_after} nodes"
        )
        width = max((len(site.node) for site in self.sites), default=0)
        lines = [
            f"  {site.node:<{width}}  "
            + (f"kept: {site.reason}" if site.reason else f"done{_other(site)}")
            for site in self.sites
        ]
        return "\n".join([head, *lines])


def _other(site: Site) -> str:
    return f", {site.other} takes its place" if site.other else ""
