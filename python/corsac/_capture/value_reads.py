"""Values of tensors, and sizes that depend on values, which the control flow of a recorded program depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corsac._capture.numbers import value_of
from corsac._capture.refusal import who_runs
from corsac._capture.stages import sizes_of
from corsac._pytorch.aten import tensors_in
from corsac._pytorch.functions import name_of
from corsac.fx import Node
from corsac.fx.proxy import TraceError

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder

#: Largest number of reads of values that control flow depends on.
READS = 32


class ValueReads:
    """The reads of values in a recorded program.

    Args:
        recorder: makes the nodes.
        allowed: whether there may be any.

    Attributes:
        nodes: nodes that read values which control flow depends on, with the values; None if there may be none.
        numbers: those of them whose values are symbols.
        rewinds: whether the program has written to existing tensors, or used random numbers, before a read.
    """

    def __init__(self, recorder: Recorder, *, allowed: bool) -> None:
        self._recorder = recorder
        self.nodes: dict[Node, Any] | None = {} if allowed else None
        self.numbers: set[Node] = set()
        self.rewinds = False
        #: Nodes whose sizes depend on values that the control flow does not depend on so far.
        self._unsized: set[Node] = set()
        #: Tensors that determine all of these sizes.
        self._undecided: list[torch.Tensor] = []

    def read(self, func: Any, nodes: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> Any:
        """Note that a function has read a value that control flow may depend on.

        Returns:
            The value for the program: a symbol, if it is a number.

        Raises:
            TraceError: changes made before it could not be undone if another path is to be taken.
        """
        node = self._node(func, nodes, keywords, result)
        is_number = type(result) is int or type(result) is float
        if is_number and self._recorder.recording.makes_number():
            return self._symbol(node, result)
        return result

    def _node(
        self, func: Any, nodes: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> Node:
        """The node of a read, with the value that it has returned."""
        assert self.nodes is not None
        if self._recorder.saw_change:
            if self._recorder.wrote if self._recorder.trains else not self._recorder.undoes_writes:
                raise TraceError(f"values decide ({name_of(func)}) after something was changed")
            # All of it can be undone.
            self.rewinds = True
        if len(self.nodes) >= READS:
            raise TraceError(f"values decide in more than {READS} places")
        node = self._recorder.graph.call_function(func, nodes, keywords)
        self._recorder.sources.note(node)
        self.nodes[node] = result
        return node

    def _symbol(self, node: Node, number: float) -> Any:
        """The symbol of a number that was read."""
        self.numbers.add(node)
        self._recorder.counts = True
        return self._recorder.recording.symbol(value_of(node.name), number, True)

    def made(self, node: Node, result: Any) -> None:
        """Note a node that has returned ``result``: its sizes may depend on values.

        Raises:
            TraceError: how many tensors it returns may depend on values, and control flow may not.
        """
        if not self._is_unsized(node):
            return
        # How many tensors there are may depend on sizes.
        if type(result) is tuple or type(result) is list:
            self._decide_sizes()
        else:
            self._unsized.add(node)

    def given(self, node: Node) -> None:
        """Note the node of a tensor: its sizes may depend on values."""
        if self._is_unsized(node):
            self._unsized.add(node)

    def _is_unsized(self, node: Node) -> bool:
        return bool(self._unsized) and any(own in self._unsized for own in node.all_input_nodes)

    def ask_sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note that sizes of tensors are read: if they depend on values, control flow depends on these."""
        if not self._unsized:
            return
        if any(
            self._recorder.tensors.node_of(own) in self._unsized for own in tensors_in(args, kwargs)
        ):
            try:
                self._decide_sizes()
            except TraceError as error:
                self._recorder.refuse(str(error), who_runs(error))

    def _decide_sizes(self) -> None:
        """Make the control flow depend on all sizes that depend on values.

        Raises:
            TraceError: it may not.
        """
        tensors, self._undecided = self._undecided, []
        self._unsized.clear()
        self.sizes_read(tensors)

    def sizes_read(self, tensors: Sequence[torch.Tensor], *, decide: bool = True) -> None:
        """Note that the sizes of tensors depend on values.

        Args:
            tensors: the tensors.
            decide: whether control flow depends on the sizes now; otherwise when the program reads one of them.

        Raises:
            TraceError: control flow may not depend on values.
        """
        if self.nodes is None:
            raise TraceError("sizes depend on values")
        nodes = tuple(map(self._recorder.node_of, tensors))
        node = self._node(sizes_of, nodes, {}, sizes_of(*tensors))
        if not decide:
            # The next stage is compiled for each set of sizes.
            self.numbers.add(node)
            self._unsized.update(nodes)
            self._undecided += tensors

    def number_read(self, own: torch.Tensor) -> int:
        """Return the number in a tensor, as a symbol: it may be another one in the next call."""
        with torch._C.DisableTorchFunction():
            number = int(own)
        if self.nodes is None or self._recorder.refusal is not None:
            return number
        try:
            node = self._node(Tensor.__int__, (self._recorder.node_of(own),), {}, number)
        except TraceError as error:
            self._recorder.refuse(str(error), who_runs(error))
            return number
        return int(self._symbol(node, number))

    def decisions(self) -> dict[Node, Any]:
        """The nodes that read values which control flow depends on, with the values. Reads of constants are dropped:
        they are the same in each call."""
        if not self.nodes or self._recorder.trains:
            return self.nodes or {}
        constants = set(self._recorder.tensors.constants())
        for node in [*self.nodes]:
            if (
                node not in self.numbers
                and node.all_input_nodes
                and all(own.op == "get_attr" or own in constants for own in node.all_input_nodes)
            ):
                del self.nodes[node]
                self._recorder.graph.erase_node(node)
        return self.nodes


__all__ = ["ValueReads"]
