"""Reads programs of ``torch.export`` as graphs."""

from __future__ import annotations

import os
from collections.abc import Collection

from corsac.fx.graph_module import GraphModule
from corsac.pt2._archive import Archive, Pt2ImportError, opened
from corsac.pt2._program import Program


def from_pt2(
    program: str | os.PathLike[str] | bytes,
    *,
    model: str | None = None,
    plain_inputs: bool = False,
    libraries: Collection[str] = (),
) -> GraphModule:
    """Read a program that ``torch.export.save`` wrote, without running what is in it.

    The parameters and buffers of the result have their names in the program, its inputs and results the structure that
    they have there; instances of classes among the results are tuples. Before each call, inputs are compared with the
    types, sizes and ranges of the program. Tensors are on the CPU.

    Args:
        program: a path, or the bytes of a file.
        model: the name of the program in an archive of several.
        plain_inputs: whether the tensors in structured inputs become separate inputs, as model files have them, and
            inputs with one value are left out.
        libraries: names of further libraries of operators that the program may call. ``aten``, ``prims``,
            ``quantized_decomposed``, ``torchvision`` and ``corsac`` are known.

    Raises:
        Pt2ImportError: (a ``ValueError``) the archive is damaged, or holds something that is not read, such as pickled
            objects; the message names the node.
        OSError: the file cannot be read.
    """
    from corsac.quantization import _operators  # registers operators of corsac

    assert _operators
    with opened(program) as archive:
        name = _chosen(archive, model)
        try:
            return Program(archive, name, plain_inputs, libraries).graph_module()
        except Pt2ImportError as error:
            if str(error).startswith(archive.name):
                raise
            raise Pt2ImportError(f"{archive.name}: {error}") from error
        except Exception as error:  # of what is not as PyTorch writes it
            reason = f"{type(error).__name__}: {error}"
            raise Pt2ImportError(f"{archive.name}: it is damaged ({reason:.300})") from error


def _chosen(archive: Archive, model: str | None) -> str:
    models = archive.models()
    if model is None and len(models) == 1:
        return models[0]
    known = ", ".join(models) or "none"
    if model is None:
        raise Pt2ImportError(f"{archive.name}: give the name of a program as model: {known}")
    if model not in models:
        raise Pt2ImportError(f"{archive.name}: there is no program {model!r}: {known}")
    return model


__all__ = ["from_pt2"]
