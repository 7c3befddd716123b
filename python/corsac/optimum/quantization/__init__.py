"""Quantisation of models of Hugging Face: what ``optimum.fx.quantization`` offered, on captured graphs.

Models are recorded in a call (:func:`corsac.capture`), so that those that cannot be traced work, too::

    from corsac.optimum.quantization import QuantizationConfig, Quantizer, quantize

    quantised = quantize(model, loader)                       # static: ranges measured on batches
    quantised = quantize(model, input_names=["input_ids", "attention_mask"])        # dynamic

    quantizer = Quantizer(model, QuantizationConfig(approach="qat", weights_bits=4))
    prepared = quantizer.prepare(batch)                       # train it
    quantised = quantizer.convert()

Results are called as the models are, and return objects of the same classes.
"""

from corsac.optimum.quantization._config import QuantizationConfig
from corsac.optimum.quantization._model import GraphModel
from corsac.optimum.quantization._quantizer import Quantizer, quantize
from corsac.optimum.quantization._saving import load_quantized, save_quantized
from corsac.quantization._conversion import CalibrationError

__all__ = [
    "CalibrationError",
    "GraphModel",
    "QuantizationConfig",
    "Quantizer",
    "load_quantized",
    "quantize",
    "save_quantized",
]
