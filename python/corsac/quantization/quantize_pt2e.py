"""Quantisation of exported programs (PT2E): a quantiser annotates the graph of ``torch.export``.

The names and signatures are those of ``torch.ao.quantization.quantize_pt2e``. Graph modules of torch.fx and of
corsac.fx are taken, and quantisers, specifications and observers of ``torch.ao`` and torchao as well as those of this
package.

Example::

    exported = torch.export.export(model.eval(), (x,)).module()
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    for batch in batches:
        prepared(batch)
    quantised = convert_pt2e(prepared)
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from corsac.fx.graph_module import GraphModule
from corsac.quantization.pt2e import _batch_norms, _training
from corsac.quantization.pt2e._constants import QUANTISE, fold_quantised
from corsac.quantization.pt2e._conversion import DEQUANTISE, Conversion
from corsac.quantization.pt2e._nodes import is_node
from corsac.quantization.pt2e._observers import Insertion, has_observers, observers_of
from corsac.quantization.pt2e._placement import copy_metadata, separate_dequantised
from corsac.quantization.pt2e._reference import write_arithmetic
from corsac.quantization.pt2e.export_utils import refuse_train_eval

__all__ = ["convert_pt2e", "prepare_pt2e", "prepare_qat_pt2e"]

#: The key of ``GraphModule.meta`` with the module of each node that was prepared, by the node's name.
_STATE = "_observed_exported_scopes"


def _scopes(graph: Any) -> dict[str, str]:
    """The last part of the path of the module that each node comes from, by name."""
    found = {}
    for node in graph.nodes:
        stack = node.meta.get("nn_module_stack")
        found[node.name] = [*stack.values()][-1][0].rpartition(".")[2] if stack else ""
    return found


def _require_graph(model: Any) -> None:
    graph = getattr(model, "graph", None)
    if graph is None or not all(is_node(node) for node in graph.nodes):
        raise TypeError(
            "expected the graph module of an exported program, torch.export.export(model, inputs).module(), got "
            f"{type(model).__name__}"
        )


def _prepare(model: Any, quantizer: Any, is_qat: bool) -> Any:
    _require_graph(model)
    meta, scopes = model.meta, _scopes(model.graph)
    if not is_qat:
        _batch_norms.fold(model)
    transform = getattr(quantizer, "transform_for_annotation", None)
    if transform is not None:
        model = transform(model)
    quantizer.annotate(model)
    quantizer.validate(model)
    if is_qat:
        _training.fuse(model)
    observers = observers_of(model.graph, is_qat)
    callback = getattr(quantizer, "prepare_obs_or_fq_callback", None)
    if callback is not None:
        callback(model, observers)
    Insertion(model, observers).run()
    prepared = _module_of(model, model.graph)
    prepared.meta = {**prepared.meta, **meta, _STATE: scopes}
    return refuse_train_eval(prepared)


def _module_of(model: Any, graph: Any) -> Any:
    """A graph module of the same package, with what the graph reads of ``model``."""
    kind = torch.fx.GraphModule if isinstance(model, torch.fx.GraphModule) else GraphModule
    return kind(model, graph)


def prepare_pt2e(model: Any, quantizer: Any) -> Any:
    """The model with observers, to be calibrated by calls with example inputs.

    Batch norms are folded into the layers before them. ``model`` is changed.

    Args:
        model: the graph module of an exported program, exported in evaluation mode.
        quantizer: annotates the graph, such as
            :class:`corsac.quantization.quantizer.x86_inductor_quantizer.X86InductorQuantizer`.

    Raises:
        AnnotationError: for an annotation that does not fit the graph, and for specifications that contradict each
            other, with the node and its line.
    """
    return _prepare(model, quantizer, False)


def prepare_qat_pt2e(model: Any, quantizer: Any) -> Any:
    """The model with fake quantisers, to be trained.

    Convolutions with batch norms round their weights as they will be when the norm is folded. ``model`` is changed.

    Args:
        model: the graph module of an exported program, exported in training mode.
        quantizer: annotates the graph, with a configuration for training.

    Raises:
        AnnotationError: for an annotation that does not fit the graph, and for specifications that contradict each
            other, with the node and its line.
    """
    return _prepare(model, quantizer, True)


def convert_pt2e(
    model: Any, use_reference_representation: bool = False, fold_quantize: bool = True
) -> Any:
    """The model with operators that quantise and dequantise in the places of observers or fake quantisers.

    ``model`` stays as it is. The result runs natively by :func:`corsac.compile`.

    Args:
        model: a prepared model that has been calibrated or trained.
        use_reference_representation: whether the operators are written out, as arithmetic with integers, for other
            compilers; :func:`corsac.compile` is faster without.
        fold_quantize: whether weights become integers; otherwise they are quantised at each call.

    Raises:
        CalibrationError: if observers have seen no values.
    """
    if not isinstance(use_reference_representation, bool):
        raise ValueError(
            f"expected a bool for use_reference_representation, got {use_reference_representation!r}"
        )
    _require_graph(model)
    scopes = model.meta.get(_STATE)
    if scopes is None and not has_observers(model):
        raise ValueError(
            f"expected a model of prepare_pt2e or prepare_qat_pt2e, got {type(model).__name__} without observers"
        )
    converted = _module_of(model, copy.deepcopy(model.graph))
    converted.meta = {key: value for key, value in model.meta.items() if key != _STATE}
    Conversion(converted, scopes or {}).run()
    _training.fold(converted, QUANTISE, DEQUANTISE)
    separate_dequantised(converted.graph)
    copy_metadata(converted.graph)
    if fold_quantize:
        fold_quantised(converted)
    if use_reference_representation:
        write_arithmetic(converted)
    meta = converted.meta
    converted = _module_of(converted, converted.graph)
    converted.meta = meta
    return refuse_train_eval(converted)
