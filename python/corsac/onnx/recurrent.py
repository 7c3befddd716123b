"""Recurrent layers with ONNX's conventions: peepholes, activations, lengths and both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

_ACTIVATIONS: dict[str, Callable[[torch.Tensor, float, float], torch.Tensor]] = {
    "relu": lambda x, a, b: torch.relu(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: torch.nn.functional.leaky_relu(x, a),
    "thresholdedrelu": lambda x, a, b: torch.where(x > a, x, 0.0),
    "scaledtanh": lambda x, a, b: a * torch.tanh(b * x),
    "hardsigmoid": lambda x, a, b: torch.clamp(a * x + b, 0, 1),
    "elu": lambda x, a, b: torch.nn.functional.elu(x, a),
    "softsign": lambda x, a, b: torch.nn.functional.softsign(x),
    "softplus": lambda x, a, b: torch.nn.functional.softplus(x),
}
_DEFAULTS = {
    "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0), "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0), "affine": (1.0, 0.0),
}  # fmt: skip
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}


def recurrent(
    kind: str,
    input: torch.Tensor,
    weight: torch.Tensor,
    recurrence: torch.Tensor,
    bias: torch.Tensor | None,
    lengths: torch.Tensor | None,
    hidden: torch.Tensor | None,
    cell: torch.Tensor | None,
    peepholes: torch.Tensor | None,
    direction: str,
    activations: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
    linear_before_reset: bool,
    input_forget: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All hidden states, the last ones and the last cells."""
    if batch_first:
        input = input.transpose(0, 1)
        hidden = None if hidden is None else hidden.transpose(0, 1)
        cell = None if cell is None else cell.transpose(0, 1)
    count, size = weight.shape[0], recurrence.shape[-1]
    batch = input.shape[1]
    names = [own.lower() for own in activations or _USUAL[kind] * count]
    each = len(names) // count
    given = _with_parameters(names, alphas, betas)
    states, lasts, cells = [], [], []
    for at in range(count):
        backwards = direction == "reverse" or at == 1
        own_bias = input.new_zeros(2 * GATES[kind] * size) if bias is None else bias[at]
        h = input.new_zeros(batch, size) if hidden is None else hidden[at]
        c = input.new_zeros(batch, size) if cell is None else cell[at]
        step = _Step(
            kind, recurrence[at], own_bias[GATES[kind] * size :], None if peepholes is None else peepholes[at],
            given[at * each : (at + 1) * each], clip, linear_before_reset, input_forget,
        )  # fmt: skip
        terms = input @ weight[at].t() + own_bias[: GATES[kind] * size]
        found: list[torch.Tensor] = [h] * input.shape[0]
        for turn in range(input.shape[0]):
            time = input.shape[0] - 1 - turn if backwards else turn
            next_h, next_c = step(terms[time], h, c)
            if lengths is not None:
                within = (time < lengths).unsqueeze(-1)
                found[time] = torch.where(within, next_h, 0.0)
                next_h, next_c = torch.where(within, next_h, h), torch.where(within, next_c, c)
            else:
                found[time] = next_h
            h, c = next_h, next_c
        states.append(torch.stack(found))
        lasts.append(h)
        cells.append(c)
    result, last, last_cell = torch.stack(states, 1), torch.stack(lasts), torch.stack(cells)
    if batch_first:
        return result.permute(2, 0, 1, 3), last.transpose(0, 1), last_cell.transpose(0, 1)
    return result, last, last_cell


def _with_parameters(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Callable[[torch.Tensor], torch.Tensor]]:
    first, second = list(alphas or ()), list(betas or ())
    made = []
    for at, name in enumerate(names):
        usual = _DEFAULTS.get(name, (0.0, 0.0))
        alpha = first[at] if at < len(first) else usual[0]
        beta = second[at] if at < len(second) else usual[1]
        function = _ACTIVATIONS[name]
        made.append(lambda x, f=function, a=alpha, b=beta: f(x, a, b))
    return made


class _Step:
    """One step of a layer in one direction."""

    def __init__(
        self,
        kind: str,
        recurrence: torch.Tensor,
        bias: torch.Tensor,
        peepholes: torch.Tensor | None,
        activations: Sequence[Callable[[torch.Tensor], torch.Tensor]],
        clip: float | None,
        linear_before_reset: bool,
        input_forget: bool,
    ) -> None:
        self.compute = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[kind]
        self.recurrence, self.bias, self.peepholes = recurrence, bias, peepholes
        self.activations, self.clip = activations, clip
        self.linear_before_reset, self.input_forget = linear_before_reset, input_forget

    def __call__(
        self, terms: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.compute(terms, h, c)

    def _activated(self, at: int, x: torch.Tensor) -> torch.Tensor:
        return self.activations[at](x if self.clip is None else x.clamp(-self.clip, self.clip))

    def _rnn(self, terms, h, c):
        h = self._activated(0, terms + h @ self.recurrence.t() + self.bias)
        return h, c

    def _gru(self, terms, h, c):
        size = h.shape[-1]
        own = h @ self.recurrence[: 2 * size].t() + self.bias[: 2 * size]
        update, reset = self._activated(0, terms[:, : 2 * size] + own).chunk(2, -1)
        last, bias = self.recurrence[2 * size :], self.bias[2 * size :]
        if self.linear_before_reset:
            inner = reset * (h @ last.t() + bias)
        else:
            inner = (reset * h) @ last.t() + bias
        new = self._activated(1, terms[:, 2 * size :] + inner)
        return (1 - update) * new + update * h, c

    def _lstm(self, terms, h, c):
        i, o, f, g = (terms + h @ self.recurrence.t() + self.bias).chunk(4, -1)
        p_i = p_o = p_f = None
        if self.peepholes is not None:
            p_i, p_o, p_f = self.peepholes.chunk(3, -1)
            i, f = i + p_i * c, f + p_f * c
        i = self._activated(0, i)
        f = 1 - i if self.input_forget else self._activated(0, f)
        c = f * c + i * self._activated(1, g)
        o = self._activated(0, o if p_o is None else o + p_o * c)
        return o * self.activations[2](c), c
