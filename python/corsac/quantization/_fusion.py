"""Fusion of layers in graph modules: the modules; the graph is changed natively."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.passes import Report, Site
from corsac.passes._budget import current_budget
from corsac.passes._weights import install
from corsac.quantization._patterns import describe, entries, nested
from corsac.quantization._requests import DescribedPattern, Numbered

#: The key of ``GraphModule.meta`` with the report.
REPORT = "fusion_report"


class TrainingModeError(AssertionError):
    """Layers are in another mode, training or evaluation, than their fusion needs."""


class _AnyNode:
    """Stands for a further input of a fused module, which is any node."""


def fuse(model: GraphModule, is_qat: bool, backend: Any) -> GraphModule:
    """A graph module with the layers fused that ``backend`` runs as one, and others left as they are.

    A layer stays alone where it is also called without the others, where it has hooks, or the graph reads its
    attributes: a warning has the reasons, and ``meta["fusion_report"]`` a :class:`corsac.passes.Report`.
    """
    dtypes = Numbered()
    patterns = [
        describe(pattern, config, dtypes)
        for pattern, config in entries(backend)
        if config.fuser_method is not None
    ]
    fused = GraphModule(model, model.graph)
    before = len(fused.graph.nodes)
    layers = _Layers(fused, is_qat, patterns)
    sites = _core.fuse_layers(fused.graph, patterns, layers.make, budget=current_budget(None))
    report = Report(
        "layer fusion", tuple(Site(*site) for site in sites), before, len(fused.graph.nodes)
    )
    if report.kept:
        reasons = "; ".join(f"{site.other}: {site.reason}" for site in report.kept)
        warnings.warn(f"layers that are not fused: {reasons}", stacklevel=4)
    result = GraphModule(fused, fused.graph)
    result.meta = {**getattr(model, "meta", {}), REPORT: report}
    return result


class _Layers:
    """The layers of a graph module, and the modules that compute several of them."""

    def __init__(self, model: GraphModule, is_qat: bool, patterns: list[DescribedPattern]) -> None:
        self._model, self._is_qat, self._patterns = model, is_qat, patterns
        self._modules = dict(model.named_modules(remove_duplicate=False))

    def make(self, matches: list[tuple[int, list[Any]]]) -> list[str | None]:
        """Put fused modules in the places of the first layers of ``matches``."""
        for place, nodes in matches:
            pattern = self._patterns[place]
            root = nodes[pattern.root].target
            layers = [self._layer(node, self._modules[root]) for node in nodes]
            self._check_modes(nodes, layers)
            install(self._model, root, self._fused(pattern, layers))
        return [None] * len(matches)

    def _layer(self, node: Any, root: torch.nn.Module) -> Any:
        if node is None or node.op in ("placeholder", "get_attr"):
            return _AnyNode
        if node.op == "call_module":
            return self._modules[node.target]
        if node.target is F.relu:
            relu = torch.nn.ReLU()
            relu.training = root.training
            return relu
        return node.target

    def _fused(self, pattern: DescribedPattern, layers: list[Any]) -> torch.nn.Module:
        config = pattern.config
        make = config.fuser_method
        if getattr(config, "_pattern_complex_format", None) is not None:
            return make(self._is_qat, *nested(pattern.pattern, layers))
        # The layers in the order in which they run.
        return make(self._is_qat, *reversed(layers))

    def _check_modes(self, nodes: list[Any], layers: list[Any]) -> None:
        modes = [
            (node.target, layer.training)
            for node, layer in zip(nodes, layers, strict=True)
            if node is not None and isinstance(layer, torch.nn.Module) and node.op == "call_module"
        ]
        norms = [
            node.target
            for node, layer in zip(nodes, layers, strict=True)
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
        ]
        if norms and len({training for _, training in modes}) > 1:
            listed = ", ".join(
                f"{name} in {'training' if training else 'evaluation'}" for name, training in modes
            )
            raise TrainingModeError(
                f"layers to fuse have to be in one mode, training or evaluation, got {listed}"
            )
        if norms and not self._is_qat and any(training for _, training in modes):
            raise TrainingModeError(
                f"{norms[0]} is in training mode, expected evaluation to fold it into the layer before: call "
                "model.eval(), or prepare_qat_fx to quantise while training"
            )
