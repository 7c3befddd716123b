"""``GraphTransformObserver``: records the nodes that a pass makes, erases and replaces, as
``torch.fx.passes.graph_transform_observer`` does."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.fx.passes.graph_drawer import FxGraphDrawer
from corsac.fx.traceback import NodeSource, NodeSourceAction

__all__ = ["GraphTransformObserver"]

T = TypeVar("T")


class GraphTransformObserver:
    """Observes a pass that changes a graph module.

    Within the context, new nodes get ``node.meta["from_node"]``, with the pass and the node that they
    replace. With a log folder, the graph before and after is drawn there if it was changed, as DOT text and
    as SVG, with erased and new nodes in yellow.

    Example::

        with GraphTransformObserver(gm, "fold", log_url="log") as observer:
            fold(gm)
        print(observer.created_nodes, observer.erased_nodes)

    Args:
        gm: the module that the pass changes.
        passname: the name of the pass.
        subsystem: a part of PyTorch's compiler, whose bisection may disable the pass.
        log_url: the folder; by default that of ``torch._inductor.config.trace``.
    """

    __pass_count = 0

    def __init__(
        self,
        gm: GraphModule,
        passname: str,
        subsystem: str | None = None,
        log_url: str | None = None,
    ) -> None:
        from torch._inductor import config

        self.gm = gm
        self.passname = passname
        self.subsystem = subsystem
        self.log_url = config.trace.log_url_for_graph_xform if log_url is None else log_url
        self.active = self.log_url is not None or config.effective_provenance_tracking_level() == 1
        if self.active:
            self.erased_nodes: set[str] = set()
            self.created_nodes: set[str] = set()
            self.name_to_node: dict[str, Node] = {}
            # Entries that new nodes take over on creation from the nodes they replace, as in
            # `replace_pattern`.
            self._inherited: dict[str, list[NodeSource]] = {}
            # Copies made within the context: they have the hooks too, which are removed at the end.
            self.copied_gms: list[GraphModule] = []
            self._node_creation_hook = self.get_node_creation_hook()
            self._node_erase_hook = self.get_node_erase_hook()
            self._node_replace_hook = self.get_node_replace_hook()
            self._deepcopy_hook = self.get_deepcopy_hook()
        if self.log_url is not None:
            GraphTransformObserver.__pass_count += 1
            self.input_dot_graph = self._drawn()

    @classmethod
    def get_current_pass_count(cls) -> int:
        """Number of passes logged in this process."""
        return cls.__pass_count

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], T]) -> T | None:
        """Run ``pass_fn`` on the module within the context; ``None`` if the pass is disabled."""
        return self._apply(lambda: pass_fn(self.gm))

    def apply_graph_pass(self, pass_fn: Callable[[Graph], T]) -> T | None:
        """Run ``pass_fn`` on the graph within the context; ``None`` if the pass is disabled."""
        return self._apply(lambda: pass_fn(self.gm.graph))

    def _apply(self, run: Callable[[], T]) -> T | None:
        from torch._dynamo.utils import dynamo_timed

        with self:
            if self._check_disable_pass():
                return None
            names = ("pass", self.subsystem, self.passname)
            with dynamo_timed(".".join(name for name in names if name)):
                return run()

    def _check_disable_pass(self) -> bool:
        from torch._inductor import config

        if self.passname.upper() in config.disabled_passes.upper():
            return True
        if self.subsystem is None:
            return False
        from torch._inductor.compiler_bisector import CompilerBisector

        return CompilerBisector.disable_subsystem("inductor", self.subsystem, lambda: self.passname)

    def __enter__(self) -> GraphTransformObserver:
        if not self.active:
            return self
        self.gm._register_create_node_hook(self._node_creation_hook)
        self.gm._register_erase_node_hook(self._node_erase_hook)
        self.gm._register_replace_node_hook(self._node_replace_hook)
        self.gm._register_deepcopy_hook(self._deepcopy_hook)
        self.erased_nodes.clear()
        self.created_nodes.clear()
        self.copied_gms.clear()
        self.name_to_node.clear()
        self._inherited.clear()
        self.name_to_node.update((node.name, node) for node in self.gm.graph.nodes)
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self.active:
            return
        for module in [*self.copied_gms, self.gm]:
            module._unregister_create_node_hook(self._node_creation_hook)
            module._unregister_erase_node_hook(self._node_erase_hook)
            module._unregister_replace_node_hook(self._node_replace_hook)
            module._unregister_deepcopy_hook(self._deepcopy_hook)
        if self.log_url is None or not (self.created_nodes or self.erased_nodes):
            return
        self._log("input", self.input_dot_graph, self.erased_nodes)
        self._log("output", self._drawn(), self.created_nodes)

    def _drawn(self) -> Any:
        drawer = FxGraphDrawer(
            self.gm, self.passname, ignore_getattr=True, ignore_parameters_and_buffers=True
        )
        return drawer.get_dot_graph()

    def _log(self, which: str, graph: Any, marked: set[str]) -> None:
        for node in graph.get_node_list():
            node.set("fillcolor", "yellow" if node.get_name() in marked else "grey")
        name = f"pass_{GraphTransformObserver.__pass_count}_{self.passname}_{which}_graph"
        path = os.path.join(str(self.log_url), name)
        graph.write(f"{path}.dot")
        graph.write_svg(f"{path}.svg")

    # Hooks are functions, not bound methods: copying the module would otherwise copy this object.

    def get_node_creation_hook(self) -> Callable[[Node], None]:
        """The function to be called with each new node."""

        def on_node_creation(node: Node) -> None:
            self.created_nodes.add(node.name)
            self.name_to_node[node.name] = node
            source = NodeSource(None, self.passname, NodeSourceAction.CREATE)
            self._inherited[node.name] = inherited = node.meta.get("from_node", [])
            # A new list: the other node's history must not change.
            node.meta["from_node"] = [*inherited, source]

        return on_node_creation

    def get_node_erase_hook(self) -> Callable[[Node], None]:
        """The function to be called with each erased node."""

        def on_node_erase(node: Node) -> None:
            self.erased_nodes.add(node.name)
            self.name_to_node.pop(node.name, None)

        return on_node_erase

    def get_node_replace_hook(self) -> Callable[[Node, str, Node], None]:
        """The function to be called with an old node, the new one's name, and a user."""

        def on_node_replace(old: Node, new: str, user: Node) -> None:
            new_node = self.name_to_node.get(new)
            if new_node is None:
                return
            sources = new_node.meta.get("from_node", [])
            # The hook is called for each user of the old node.
            if any(source.name == old.name for source in sources):
                return
            actions = [NodeSourceAction.REPLACE]
            if new_node.name in self.created_nodes:
                actions.append(NodeSourceAction.CREATE)
            # The entry appended below already records the creation by this pass, and the entries of the old
            # node.
            inherited = {id(source) for source in self._inherited.get(new, ())}
            said = inherited & {id(source) for source in old.meta.get("from_node", ())}
            kept = [
                source
                for source in sources
                if id(source) not in said
                and (
                    source.pass_name != self.passname or source.action != [NodeSourceAction.CREATE]
                )
            ]
            new_node.meta["from_node"] = [*kept, NodeSource(old, self.passname, actions)]

        return on_node_replace

    def get_deepcopy_hook(self) -> Callable[[GraphModule], None]:
        """The function to be called with each copy of the module."""

        def on_deepcopy(gm: GraphModule) -> None:
            self.copied_gms.append(gm)

        return on_deepcopy
