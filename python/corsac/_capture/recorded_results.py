"""The result of a recorded program: the output of its graph, and what builds the value that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from corsac._capture.constants import fold_written
from corsac._capture.numbers import Expression, depends_on_values
from corsac._capture.refusal import Kind, UnknownObject
from corsac._capture.replay import Replay
from corsac._capture.result_template import ResultTemplate, is_key, is_plain
from corsac._native.strides import Layout, layouts_of
from corsac._pytorch.aten import has_attributes
from corsac.fx.proxy import TraceError

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder


class RecordedResults:
    """Makes the output node of a recorded program.

    Args:
        recorder: has the nodes.

    Attributes:
        layouts: memory layouts of the results that the graph computes; None if all are contiguous.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.layouts: tuple[Layout | None, ...] | None = None

    def replay(
        self,
        returned: Any,
        inputs: Sequence[torch.Tensor],
        numbers: Mapping[int, int],
        edits: Sequence[Any],
    ) -> Replay:
        """Make the output node of a program that finds objects, by id in ``numbers``, and changes them."""
        values = [own for *_, values in edits for own in values]
        calls = [] if self._recorder.deferred is None else self._recorder.deferred.calls
        values += [own for call in calls for own in call.args]
        for _, _, key, _ in edits:
            if key is not None and not is_key(
                key, lambda own: not self._recorder.recording.made(own)
            ):
                raise UnknownObject(f"it sets an entry for a {type(key).__name__}")
        template = self._template((returned, *values), numbers)
        places = {id(own): number for number, own in enumerate(inputs)}
        sources: list[int | torch.Tensor | None] = []
        results = []
        for own in template.tensors:
            node = self._recorder.node_of(own)
            if id(own) in places:
                sources.append(places[id(own)])
            elif node.op == "get_attr":
                sources.append(own)
            else:
                sources.append(None)
                results.append(node)
        self._recorder.graph.output(tuple(results))
        computed = zip(template.tensors, sources, strict=True)
        self._note_results([own for own, source in computed if source is None])
        template.tensors.clear()
        # Tensors of this call are not kept alive.
        later = [(replace(own, args=()), len(own.args)) for own in calls]
        counted = [(number, kind, key, len(own)) for number, kind, key, own in edits]
        return Replay(template, sources, counted, later)

    def output(self, returned: Any) -> ResultTemplate | None:
        """Make the output node; return the template of the result, or None if the node has the same structure."""
        if is_plain(returned) and not self._has_known_containers(returned):
            leaves, spec = tree_flatten(returned)
            if any(map(has_attributes, leaves)):
                raise TraceError("it returns a tensor with attributes")
            self._recorder.weights.update(
                fold_written(self._recorder.tensors, self._recorder.graph, leaves)
            )
            values = [self._recorder.node_of(own) for own in leaves]
            self._recorder.graph.output(tree_unflatten(values, spec))
            self._note_results(leaves)
            return None
        template = self._template(returned, {})
        self._recorder.graph.output(tuple(map(self._recorder.node_of, template.tensors)))
        self._note_results(template.tensors)
        template.tensors.clear()
        return template

    def _note_results(self, results: Sequence[torch.Tensor]) -> None:
        """Note the memory layouts of the results that the graph computes, and refuse results that share memory which
        an index tensor selects."""
        if self._recorder.memory.shares_selected(results):
            self._recorder.refuse(
                "it returns a part that a tensor chooses of something else", Kind.HOST
            )
        if not self._recorder.trains:
            self.layouts = layouts_of(results, self._recorder.memory.existing)
            return
        for own in results:
            is_given = (
                self._recorder.is_input(own) or self._recorder.tensors.weight_node(own) is not None
            )
            if own.requires_grad and own.is_leaf and not is_given:
                # Other backends would return a differentiable view.
                self._recorder.refuse(
                    "it returns a view, made without gradients, of what wants some", Kind.HOST
                )

    def _template(self, returned: Any, numbers: Mapping[int, int]) -> ResultTemplate:
        """The template of a program's result, with constants folded."""
        template = ResultTemplate(
            returned,
            lambda own: not self._recorder.recording.made(own),
            numbers,
            self._constant if self._recorder.sizes is not None or self._recorder.counts else None,
        )
        self._recorder.weights.update(
            fold_written(self._recorder.tensors, self._recorder.graph, template.tensors)
        )
        return template

    def _constant(self, own: Any) -> Expression:
        """The expression of a number in the result that depends on values; None for other numbers, which are fixed."""
        expression = self._recorder.recording.expression(own)
        if depends_on_values(expression):
            return expression
        self._recorder.recording.fix(own)
        return None

    def _has_known_containers(self, returned: Any) -> bool:
        """Whether a container in the result existed before, or occurs twice: its identity matters then."""
        seen: set[int] = set()

        def check(own: Any) -> bool:
            if isinstance(own, torch.Tensor):
                return False
            if id(own) in seen or not self._recorder.recording.made(own):
                return True
            seen.add(id(own))
            return any(map(check, own.values() if type(own) is dict else own))

        return check(returned)


__all__ = ["RecordedResults"]
