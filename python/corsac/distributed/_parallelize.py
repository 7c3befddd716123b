"""Models on a mesh: weights cut in one dimension, copies in the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from corsac.distributed._agreement import agree, group_of
from corsac.distributed._buckets import BYTES
from corsac.distributed._data_parallel import DataParallel, data_parallel
from corsac.distributed._errors import ParallelError
from corsac.distributed._parallel import Parallel, parallel_of

#: Names of the dimensions of a mesh in which weights are cut, and gradients averaged.
_TENSOR, _DATA = ("tensor", "tp"), ("data", "dp")


def parallelize(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    mesh: Any = None,
    *,
    tp: int | None = None,
    training: bool = True,
    sequence_parallel: bool = False,
    replicate: Collection[str] = (),
    shard: Mapping[str, int] | None = None,
    uneven: str = "error",
    loss_fn: Callable[..., torch.Tensor] | None = None,
    weights: str | os.PathLike[str] | None = None,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
    bucket_bytes: int = BYTES,
    scatter: bool = False,
    timeout: float = 300.0,
) -> Parallel | DataParallel:
    """Cut the weights and computations of a model among the ranks of a group. All ranks call it.

    Args:
        model: a module, which may be on ``meta``, or a :class:`ParallelPlan`. The graph has the training modes that
            its modules have now.
        example_inputs: the positional arguments of a call: a tensor, or a tuple of tensors and plain values.
        kwargs: its keyword arguments.
        mesh: a :class:`~torch.distributed.device_mesh.DeviceMesh`, or a process group; by default a group of all ranks. In
            a mesh of two dimensions, weights are cut in ``"tensor"`` or ``"tp"``, and gradients are averaged in ``"data"``
            or ``"dp"``. Arguments are then a part of the batch.
        tp: the number of ranks among which weights are cut, which has to be that of ``mesh``.
        training, sequence_parallel, replicate, shard, uneven, dynamic_shapes: as for :func:`plan_parallel`.
        loss_fn: takes the result of the model and a target, which is then the last positional argument of a call and of
            ``example_inputs``. In the graph, a cross entropy needs no whole logits.
        weights: a safetensors file, or a folder of them, of which each rank reads its parts only. By default, the weights of the model.
        bucket_bytes, scatter: as for :func:`data_parallel`, for a mesh of two dimensions.
        timeout: seconds after which a rank that waits for another one gives up, if ``mesh`` is None.

    Returns:
        This rank's part. For a mesh of two dimensions a :class:`DataParallel`, whose ``module`` is that part.

    Raises:
        ParallelError: the model cannot be captured or cut, or a rank failed.
        PlanMismatchError: the ranks have different plans.
    """
    copies = None
    if isinstance(mesh, DeviceMesh) and mesh.ndim == 2:
        mesh, copies = _dimensions(mesh)
    group = group_of(mesh, timeout)
    options = {
        "training": training,
        "sequence_parallel": sequence_parallel,
        "replicate": replicate,
        "shard": shard,
        "uneven": uneven,
        "dynamic_shapes": dynamic_shapes,
    }
    given = (model, example_inputs, kwargs, group, tp, loss_fn, weights, options)
    if copies is None:
        return parallel_of(*given)
    made: Parallel | None = None
    error: Exception | None = None
    try:
        made = parallel_of(*given)
    except Exception as caught:
        error = caught
    # Ranks of other parts learn of a failure, too.
    agree(copies.get_group(), {}, error, ParallelError)
    return data_parallel(made, mesh=copies, bucket_bytes=bucket_bytes, scatter=scatter)


def _dimensions(mesh: DeviceMesh) -> tuple[DeviceMesh, DeviceMesh]:
    """The dimensions in which weights are cut, and gradients averaged.

    Raises:
        ParallelError: they have other names.
    """
    names = mesh.mesh_dim_names
    if names is None:
        raise ParallelError(
            "expected a mesh whose dimensions have names: call init_device_mesh with mesh_dim_names"
        )
    tensor = [own for own in names if own in _TENSOR]
    data = [own for own in names if own in _DATA]
    if len(tensor) != 1 or len(data) != 1:
        raise ParallelError(
            f"expected a mesh with the dimensions {' or '.join(map(repr, _DATA))} and "
            f"{' or '.join(map(repr, _TENSOR))}, got {list(names)}"
        )
    return mesh[tensor[0]], mesh[data[0]]


__all__ = ["parallelize"]
