"""Quantisers of models of Hugging Face, by their captured graphs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from corsac.fx.proxy import TraceError
from corsac.optimum.quantization._class_names import model_of
from corsac.optimum.quantization._config import QuantizationConfig
from corsac.optimum.quantization._inputs import arguments, example_of, parameters_of
from corsac.optimum.quantization._layers import dropouts_as_modules, with_linear_layers
from corsac.optimum.quantization._model import GraphModel
from corsac.optimum.quantization._observers import (
    drop_observers,
    float_values,
    has_float,
    is_input_of_layer,
    ranges_of,
)
from corsac.optimum.quantization._program import Program, captured
from corsac.passes import remove_dropout
from corsac.quantization._conversion import CalibrationError
from corsac.quantization.one_call._data import not_accepted
from corsac.quantization.one_call._layers import (
    Layer,
    check_weights,
    exclude_layers,
    is_within,
    modules_named,
)
from corsac.quantization.qconfig_mapping import QConfigMapping
from corsac.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx


class Quantizer:
    """Quantises a model of Hugging Face, or any other that can be captured: :meth:`calibrate` or train, then
    :meth:`convert`.

    Example::

        quantizer = Quantizer.from_name("BertForSequenceClassification", {"num_labels": 2})
        quantizer.calibrate(loader)
        quantised = quantizer.convert()

    Args:
        model: the float model, which stays as it is.
        config: how to quantise it; static by default.
        qconfig_mapping: a ``QConfigMapping``, or a dictionary of the same, in the place of what ``config`` says of layers;
            operators between layers are quantised, too, as :func:`corsac.quantization.quantize_fx.prepare_fx` does it.
        example_inputs: arguments of a typical call, by name or in a tuple. By default the first batch of data, or small
            inputs of the model's own.
        input_names: the names of inputs of the model's own that are used if there are neither examples nor data.

    Attributes:
        prepared: the model with observers, or fake quantisers; None until there is an example.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: a weight has NaN or infinity.
    """

    def __init__(
        self,
        model: nn.Module,
        config: QuantizationConfig | None = None,
        *,
        qconfig_mapping: Any = None,
        example_inputs: Any = None,
        input_names: Iterable[str] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        self.config = config or QuantizationConfig()
        if isinstance(qconfig_mapping, Mapping):
            qconfig_mapping = QConfigMapping.from_dict(dict(qconfig_mapping))
        self.qconfig_mapping = qconfig_mapping
        self.model = model
        self.input_names = None if input_names is None else tuple(input_names)
        self.prepared: GraphModel | None = None
        self._program: Program | None = None
        if example_inputs is not None:
            self.prepare(example_inputs)

    @classmethod
    def from_model(
        cls, model: nn.Module, config: QuantizationConfig | None = None, **options: Any
    ) -> Quantizer:
        """Of a model; the same as the class itself."""
        return cls(model, config, **options)

    @classmethod
    def from_name(
        cls,
        name: str,
        model_config: Any = None,
        config: QuantizationConfig | None = None,
        **options: Any,
    ) -> Quantizer:
        """Of a class of transformers, by its name, and a configuration.

        Args:
            name: the name of the class, such as ``"BertForSequenceClassification"``.
            model_config: the configuration, or a mapping of the values that differ from the class's defaults.
            config: how to quantise the model.
            options: as for the class.

        Raises:
            ValueError: transformers has no such class; the message lists the nearest names.
        """
        return cls(model_of(name, model_config), config, **options)

    def prepare(self, example_inputs: Any = None) -> GraphModel:
        """The model with observers or, for training, fake quantisers.

        It is called as the float model, with any number and length of sequences.

        Args:
            example_inputs: arguments of a typical call; see the class.

        Raises:
            TraceError: the model is no graph.
            ValueError: the model does not accept the example, or has no layer to quantise.
        """
        if example_inputs is None:
            given: dict[str, Any] = dict(example_of(self.model, self.input_names))
        else:
            data = example_inputs
            if isinstance(data, list):
                data = tuple(data)
            ((_, given),) = arguments(self.model, data, "example_inputs, batch")
        return self._prepare(given, "example_inputs")

    def calibrate(self, data: Any) -> Quantizer:
        """Run the model on batches, so that observers see the ranges; return the quantiser.

        Args:
            data: batches: mappings of arguments by name, such as those of a ``DataLoader``; tuples of positional ones;
                tensors; or one of these. Names that are no inputs of the model are left out.

        Raises:
            TypeError: the data is none of these.
            ValueError: a batch has NaN or infinity, other inputs or types than the first one, or is not accepted by the
                model; the message has its number.
        """
        if self.config.approach == "dynamic":
            raise ValueError("approach 'dynamic' measures no ranges: call convert() without data")
        was_training = self.prepared is not None and self.prepared.training
        count = 0
        for where, given in arguments(self.model, data):
            prepared = self.prepared or self._prepare(given, where)
            prepared.check(given, where)
            prepared.eval()
            self._run(prepared, given, where)
            count += 1
        if not count:
            raise ValueError("the calibration data is empty: expected at least one batch")
        if self.prepared is not None:
            self.prepared.train(was_training)
        return self

    @staticmethod
    def _run(prepared: GraphModel, given: Mapping[str, Any], where: str) -> None:
        try:
            with torch.no_grad():
                prepared(**given)
        except Exception as error:
            tensors = {name: own for name, own in given.items() if isinstance(own, torch.Tensor)}
            shown = ", ".join(f"{name} {[*own.shape]}" for name, own in tensors.items())
            raise not_accepted(f"{where} ({shown})", error) from error

    def convert(self) -> GraphModel:
        """The quantised model, in evaluation mode.

        Raises:
            CalibrationError: ranges were not measured, or the model was not trained.
        """
        if self.prepared is None and self.config.approach != "dynamic":
            raise CalibrationError(
                f"approach {self.config.approach!r} needs data: call calibrate() with batches"
                + (", or prepare() and train the model" if self.config.approach == "qat" else "")
                + ", before convert()"
            )
        prepared = self.prepared or self.prepare()
        assert self._program is not None
        observed = copy.copy(prepared.graph_module)
        was_training = prepared.training
        prepared.eval()
        converted = convert_fx(observed, backend_config=self._backend())
        prepared.train(was_training)
        made = GraphModel(self._program, converted, self.model)
        # A mapping has classes and functions, which files do not hold.
        made.quantization_config = None if self.qconfig_mapping else self.config
        made.ranges = ranges_of(prepared.graph_module)
        return made.eval()

    def quantize(self, data: Any = None) -> GraphModel:
        """:meth:`calibrate` on data, if they are given, and :meth:`convert`."""
        if data is not None:
            if self.config.approach == "dynamic":
                if self.prepared is None:
                    _, given = next(arguments(self.model, data))
                    self._prepare(given, "calibration batch 0")
            else:
                self.calibrate(data)
        return self.convert()

    def _prepare(self, given: Mapping[str, Any], where: str) -> GraphModel:
        own = self.model
        is_qat = self.config.approach == "qat"
        model = with_linear_layers(copy.deepcopy(own) if is_qat else own).eval()
        given = {name: value for name, value in given.items() if value is not None}
        if getattr(self.model_config, "use_cache", False) and "use_cache" in parameters_of(own):
            # A cache would be another result, which graphs do not take back.
            given.setdefault("use_cache", False)
        program = self._captured(model, given, where)
        if is_qat:
            dropouts_as_modules(program.module)
        else:
            remove_dropout(program.module)
        mapping = self.qconfig_mapping or self._mapping(program, model)
        prepare = prepare_qat_fx if is_qat else prepare_fx
        inputs = tuple(given[own.name] for own in program.inputs.tensors)
        keep = is_input_of_layer
        if self.qconfig_mapping:
            keep = has_float(float_values(program.module, inputs))
        program.module.train(is_qat)
        observed = prepare(program.module, mapping, inputs, backend_config=self._backend())
        if self.config.approach != "dynamic":
            drop_observers(observed, keep)
        self._program = program
        self.prepared = GraphModel(program, observed, own)
        return self.prepared.train(is_qat)

    def _backend(self) -> Any:
        return None if self.qconfig_mapping else self.config.backend()

    @property
    def model_config(self) -> Any:
        """The configuration of the model, if it has one."""
        return getattr(self.model, "config", None)

    @staticmethod
    def _captured(model: nn.Module, given: Mapping[str, Any], where: str) -> Program:
        try:
            return captured(model, given)
        except TraceError:
            raise
        except Exception as error:
            raise not_accepted(where, error) from error

    def _mapping(self, program: Program, model: nn.Module) -> QConfigMapping:
        """The configurations of layers."""
        config = self.config
        module = program.module
        layers = [Layer([path], module.get_submodule(path)) for path in program.layers]
        wanted = config.operators_to_quantize
        for layer in layers:
            kind, own = type(layer.module).__name__, layer.module.weight
            if kind not in wanted:
                layer.reason = f"{kind} is none of operators_to_quantize"
            elif config.approach == "dynamic" and not layer.is_matrix:
                layer.reason = "only inputs of linear layers are quantised row by row"
            elif own.dtype != torch.float32:
                dtype = str(own.dtype).removeprefix("torch.")
                layer.reason = f"its weight is {dtype}, expected float32"
        exclude_layers(model, layers, config.exclude)
        overridden = self._overrides(layers, model)
        check_weights(layers)
        mapping = QConfigMapping().set_global(None)
        qconfig = config.qconfig()
        for layer in layers:
            if not layer.reason:
                mapping.set_module_name(layer.name, overridden.get(layer.name, qconfig))
        if all(layer.reason for layer in layers):
            reasons = "; ".join(sorted({layer.reason for layer in layers})) or "it calls none"
            raise ValueError(f"{type(model).__name__} has no layer to quantise: {reasons}")
        return mapping

    def _overrides(self, layers: list[Layer], model: nn.Module) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for pattern, changes in self.config.overrides.items():
            named = modules_named(model, pattern, "overrides")
            qconfig = self.config.overridden(changes).qconfig()
            for layer in layers:
                if is_within(layer.name, named):
                    found[layer.name] = qconfig
        return found


def quantize(
    model: nn.Module | str,
    calibration_data: Any = None,
    config: QuantizationConfig | None = None,
    *,
    model_config: Any = None,
    example_inputs: Any = None,
    input_names: Iterable[str] | None = None,
    **options: Any,
) -> GraphModel:
    """A quantised model, in one call.

    Args:
        model: a model, or the name of a class of transformers.
        calibration_data: batches, for the approach ``"static"``; see :meth:`Quantizer.calibrate`.
        config: how to quantise; made of ``options`` if not given.
        model_config: with a name: the model's configuration, or a mapping of values.
        example_inputs, input_names: as for :class:`Quantizer`.
        options: attributes of :class:`QuantizationConfig`; ``approach`` is ``"dynamic"`` by default if there are no data.

    Raises:
        ValueError: an argument is none of the above; as for :class:`Quantizer`.
    """
    if config is None:
        options.setdefault("approach", "dynamic" if calibration_data is None else "static")
        config = QuantizationConfig.from_dict(options)
    elif options:
        raise ValueError(f"config is given: expected no {', '.join(sorted(options))}")
    if config.approach == "qat":
        raise ValueError(
            "approach 'qat' needs training: use Quantizer(model, config).prepare(), train, and convert()"
        )
    if isinstance(model, str):
        model = model_of(model, model_config)
    quantizer = Quantizer(model, config, example_inputs=example_inputs, input_names=input_names)
    return quantizer.quantize(calibration_data)


__all__ = ["Quantizer", "quantize"]
