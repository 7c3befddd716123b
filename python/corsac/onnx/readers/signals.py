"""Fourier transforms and windows."""

from __future__ import annotations

from corsac.onnx import signals
from corsac.onnx._emitter import Emitter
from corsac.onnx._model_reader import dtype_of
from corsac.onnx._registry import reads
from corsac.onnx._values import Value


@reads("DFT", since=20)
def dft(
    g: Emitter,
    input: Value,
    length: Value | None = None,
    axis: Value | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    along = -2 if axis is None else g.int(axis)
    count = None if length is None else g.int(length)
    return g.call(signals.dft, input, count, along, bool(inverse), bool(onesided))


@reads("DFT", since=17)
def dft_17(
    g: Emitter,
    input: Value,
    length: Value | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    count = None if length is None else g.int(length)
    return g.call(signals.dft, input, count, axis, bool(inverse), bool(onesided))


@reads("STFT", since=17)
def stft(
    g: Emitter,
    signal: Value,
    step: Value,
    window: Value | None = None,
    length: Value | None = None,
    *,
    onesided: int = 1,
) -> Value:
    count = None if length is None else g.int(length)
    return g.call(signals.stft, signal, g.int(step), window, count, bool(onesided))


@reads("MelWeightMatrix", since=17)
def mel_weight_matrix(
    g: Emitter,
    bins: Value,
    length: Value,
    rate: Value,
    low: Value,
    high: Value,
    *,
    output_datatype: int = 1,
) -> Value:
    return g.run(
        signals.mel_weight_matrix, bins, length, rate, low, high, dtype_of(output_datatype)
    )
