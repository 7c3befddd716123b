"""Language models in files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from corsac import _core


class NewToken(NamedTuple):
    """A new token of a sequence of a batch.

    Attributes:
        sequence: the sequence.
        token: the token.
        finish: why the text ends: with a token that ends texts (``"stop"``), it has as many tokens as were asked for
            (``"length"``), the model takes no longer one (``"full"``), or it gave logits that are no numbers
            (``"invalid"``: this token is the last one before). None if it goes on.
    """

    sequence: int
    token: int
    finish: Literal["stop", "length", "full", "invalid"] | None


class TextModel:
    """A language model in a file of :func:`corsac.generation.save`. Any number of threads may use it at once.

    The settings of generation are those of transformers, in the same order: ``repetition_penalty`` (above 1 for fewer
    repetitions), ``temperature`` (0 for the most probable token), ``top_k`` (most tokens to choose from), ``top_p``
    (the fewest tokens whose probabilities add up to it), ``seed`` (equal seeds give equal texts), ``stop`` (tokens
    that end a text; by default those of the model).
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int | None = None) -> None:
        self._core = _core.TextModel(os.fspath(path), threads)

    @property
    def vocabulary(self) -> int:
        """Number of tokens that there are."""
        return self._core.vocabulary

    @property
    def longest_text(self) -> int:
        """Most tokens of a text, but for its last one."""
        return self._core.longest_text

    @property
    def stop(self) -> list[int]:
        """Tokens that end a text."""
        return self._core.stop

    @property
    def most_rows(self) -> int:
        """Most sequences that it continues at once."""
        return self._core.most_rows

    def generate(self, prompts: Any, **settings: Any) -> Any:
        """The tokens that follow a prompt, as a list; or those that follow each of several prompts, which are continued
        together.

        Args:
            prompts: tokens, or a list of prompts, of any lengths; arrays and tensors are taken, too.
            settings: ``max_new_tokens`` (256), and those of the class. The seed of prompt ``n`` is ``seed + n``.

        Raises:
            ValueError: a setting is out of its range, or the model does not take a prompt.
        """
        given = list(prompts)
        several = bool(given) and hasattr(given[0], "__iter__") and _dims(given[0]) != 0
        each = given if several else [given]
        batch = self.batch(min(len(each), self.most_rows))
        seed = settings.pop("seed", 0)
        texts: dict[int, list[int]] = {
            batch.add(prompt, seed=(seed + number) % 2**64, **settings): []
            for number, prompt in enumerate(each)
        }
        while batch:
            for new in batch.step():
                if new.finish != "invalid":
                    texts[new.sequence].append(new.token)
        return list(texts.values()) if several else next(iter(texts.values()))

    def stream(self, prompt: Sequence[int], **settings: Any) -> Iterator[int]:
        """The tokens that follow a prompt, each as soon as it is known; see :meth:`generate`."""
        batch = self.batch(1)
        batch.add(prompt, **settings)
        return self._tokens(batch)

    @staticmethod
    def _tokens(batch: Batch) -> Iterator[int]:
        while batch:
            for new in batch.step():
                if new.finish != "invalid":
                    yield new.token

    def batch(self, rows: int) -> Batch:
        """A batch that continues ``rows`` sequences at once."""
        return Batch(self._core.batch(rows))

    def __repr__(self) -> str:
        return (
            f"TextModel(vocabulary={self.vocabulary}, longest_text={self.longest_text}, "
            f"most_rows={self.most_rows})"
        )


class Batch:
    """Sequences that a model continues together, in steps of a token; :meth:`TextModel.batch` makes one.

    Reading the weights once for all takes little longer than for one sequence. Sequences may be added and removed
    between steps; the tokens of each are those that it would have alone. The length is the number of sequences that
    have not ended.
    """

    def __init__(self, core: _core.TextBatch) -> None:
        self._core = core

    def add(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[int] | None = None,
    ) -> int:
        """Add a sequence, and return its number. It begins in the next step, or when another one ends, if all rows
        are occupied. For the settings see :class:`TextModel`.

        Raises:
            ValueError: a setting is out of its range, or the model does not take the prompt.
        """
        choice = (temperature, top_k, top_p, repetition_penalty, seed)
        tokens = [int(token) for token in prompt]
        ends = None if stop is None else [int(token) for token in stop]
        try:
            return self._core.add(tokens, max_new_tokens, choice, ends)
        except OverflowError as error:
            raise ValueError(f"a token or a setting is negative or too large: {error}") from None

    def remove(self, sequence: int) -> bool:
        """End a sequence; false if there is none."""
        return self._core.remove(sequence)

    def step(self) -> list[NewToken]:
        """Continue each sequence by a token, and begin waiting ones where rows are free."""
        return [NewToken(*new) for new in self._core.step()]

    def __len__(self) -> int:
        return len(self._core)


def _dims(own: Any) -> int | None:
    """The number of dimensions of an array or a tensor; None of others."""
    return getattr(own, "ndim", None)


def candidates(
    logits: Sequence[float],
    text: Sequence[int] = (),
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    repetition_penalty: float = 1.0,
) -> list[tuple[int, float]]:
    """The tokens that may come after ``text``, and how probable each is, the most probable one first; for the settings
    see :class:`TextModel`.

    Raises:
        ValueError: a setting is out of its range, or a logit is not a number.
    """
    choice = (temperature, top_k, top_p, repetition_penalty, 0)
    return _core.text_candidates(list(logits), list(text), choice)


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> TextModel:
    """The language model in a file, which runs on ``threads`` threads: by default ``CORSAC_NUM_THREADS``, or the number
    of cores.

    Raises:
        ModelFileError: the file is damaged, or holds no language model.
        OSError: it cannot be read.
    """
    return TextModel(path, threads=threads)


__all__ = ["Batch", "NewToken", "TextModel", "candidates", "load"]
