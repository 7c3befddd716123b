"""Several quantisers as one."""

from __future__ import annotations

from typing import Any

import torch

from corsac.quantization.quantizer.quantizer import Q_ANNOTATION_KEY, EdgeOrNode, Quantizer

__all__ = ["ComposableQuantizer"]


class ComposableQuantizer(Quantizer):
    """Quantisers that annotate one after the other; none may change what another has annotated.

    Args:
        quantizers: the quantisers, in this order.
    """

    def __init__(self, quantizers: list[Any]) -> None:
        super().__init__()
        self.quantizers = quantizers
        self._graph_annotations: dict[Any, Any] = {}

    def transform_for_annotation(self, model: torch.nn.Module) -> torch.nn.Module:
        for quantizer in self.quantizers:
            model = quantizer.transform_for_annotation(model)
        return model

    def annotate(self, model: torch.nn.Module) -> torch.nn.Module:
        for quantizer in self.quantizers:
            quantizer.annotate(model)
            self._keep(model, quantizer)
        return model

    def _keep(self, model: Any, quantizer: Any) -> None:
        for node in model.graph.nodes:
            found = node.meta.get(Q_ANNOTATION_KEY)
            before = self._graph_annotations.get(node)
            if before is not None and before is not found:
                raise RuntimeError(
                    f"quantizer {type(quantizer).__name__} has changed the annotation of node {node.name}, "
                    "which a quantizer before it has made"
                )
            if found is not None:
                self._graph_annotations[node] = found

    def validate(self, model: torch.nn.Module) -> None:
        for quantizer in self.quantizers:
            quantizer.validate(model)

    def prepare_obs_or_fq_callback(
        self, model: torch.nn.Module, edge_or_node_to_obs_or_fq: dict[EdgeOrNode, Any]
    ) -> None:
        for quantizer in self.quantizers:
            callback = getattr(quantizer, "prepare_obs_or_fq_callback", None)
            if callback is not None:
                callback(model, edge_or_node_to_obs_or_fq)
