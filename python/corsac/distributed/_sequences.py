"""Parts of sequences between the layers of a model that is cut among ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from corsac.distributed._errors import ParallelError
from corsac.distributed._node_plan import NodePlan
from corsac.distributed._program import Program
from corsac.distributed._values import InputType, described, quiet, values_for
from corsac.fx import Node


def check_sequences(
    program: Program,
    inputs: Sequence[InputType],
    ranks: int,
    nodes: Mapping[Node, NodePlan],
    products: Collection[Node],
) -> None:
    """Check that the ranks divide a dimension of each sum of sequences: of products and embeddings.

    Raises:
        ParallelError: they do not.
    """
    with quiet():
        values = values_for(program, inputs)
    for node, planned in nodes.items():
        is_layer = node in products or planned.form == "lookup"
        if is_layer and planned.output == ["sum"] and values[node].dim() > 2:
            shape = list(values[node].shape)
            if all(size % ranks for size in shape[:-1]):
                raise ParallelError(
                    f"{described(node)}: {ranks} ranks divide no dimension of {shape} but the last, for "
                    "sequence_parallel; uneven='replicate' keeps such values whole"
                )


def view_wholes(nodes: Mapping[Node, NodePlan], written: set[Node]) -> None:
    """Let views of parts that are only used as wholes, by calls on parts, be views of wholes: the sizes of a batch may
    change then. Their gradients are summed before the view."""
    for node, planned in reversed(list(nodes.items())):
        if (
            planned.form == "view"
            and not planned.replicated
            and isinstance(planned.output[0], tuple)
            and node not in written
            and all(_uses_whole(nodes[user], node) for user in node.users)
        ):
            planned.inputs = {source: [None] for source in planned.inputs}
            planned.output, planned.sizes, planned.has_summands = [None], [], True


def _uses_whole(user: NodePlan, value: Node) -> bool:
    """Whether a call on parts uses the whole of a value."""
    return user.split and user.inputs.get(value) == [None]


__all__ = ["check_sequences", "view_wholes"]
