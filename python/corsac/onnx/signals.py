"""Fourier transforms with real and imaginary parts in the last dimension."""

from __future__ import annotations

import math

import torch


def dft(
    input: torch.Tensor, length: int | None, axis: int, inverse: bool, onesided: bool
) -> torch.Tensor:
    """The Fourier transform along ``axis``; of real numbers if the last dimension has one element."""
    rank = input.dim()
    axis = axis % rank
    numbers = torch.view_as_complex(input.contiguous()) if input.shape[-1] == 2 else input[..., 0]
    if inverse and onesided:
        return torch.fft.irfft(numbers, length, axis).unsqueeze(-1)
    if onesided:
        return torch.view_as_real(torch.fft.rfft(numbers, length, axis))
    function = torch.fft.ifft if inverse else torch.fft.fft
    return torch.view_as_real(function(numbers, length, axis))


def stft(
    signal: torch.Tensor, step: int, window: torch.Tensor | None, length: int | None, onesided: bool
) -> torch.Tensor:
    """Fourier transforms of parts of the signal, ``step`` apart."""
    size = length if length is not None else window.shape[0]
    if signal.dim() == 3 and signal.shape[-1] == 2:
        numbers = torch.view_as_complex(signal.contiguous())
    else:
        numbers = signal.reshape(signal.shape[0], signal.shape[1])
    frames = numbers.unfold(1, size, step)
    if window is not None:
        frames = frames * window
    function = torch.fft.rfft if onesided and not frames.is_complex() else torch.fft.fft
    found = function(frames)
    if onesided:
        found = found[..., : size // 2 + 1]
    return torch.view_as_real(found)


def mel_weight_matrix(
    bins: torch.Tensor,
    length: torch.Tensor,
    rate: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Weights of the bins of a spectrum in bands that are equally wide on the mel scale."""
    count, spectrum = int(bins), int(length) // 2 + 1
    mels = [2595 * math.log10(1 + float(own) / 700) for own in (low, high)]
    edges = (
        torch.arange(count + 2, dtype=torch.float64) * ((mels[1] - mels[0]) / (count + 2)) + mels[0]
    )
    hertz = 700 * (10 ** (edges / 2595) - 1)
    places = torch.floor((int(length) + 1) * hertz / int(rate)).to(torch.int64).tolist()
    result = torch.zeros(spectrum, count, dtype=torch.float64)
    for at in range(count):
        begin, centre, end = places[at : at + 3]
        if centre == begin:
            result[centre, at] = 1
        for place in range(begin, centre + 1):
            if centre != begin:
                result[place, at] = (place - begin) / (centre - begin)
        for place in range(centre, end):
            if end != centre:
                result[place, at] = (end - place) / (end - centre)
    return result.to(dtype)
