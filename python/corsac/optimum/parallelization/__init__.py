"""Tensor parallelism of models of Hugging Face: the names of ``optimum.fx.parallelization``, on plans of
:func:`corsac.distributed.parallelize`::

    ctx = ParallelExecutionCtx(tp_group=group, current_device=torch.device("cpu"))
    model = parallelize_model(model, ctx)            # or a folder with a configuration and safetensors files
    model(input_ids, labels=labels).loss.backward()  # the first call plans it

Where optimum knows pairs of linear layers by patterns, placements are found on the graph, so that attention with fused
weights, tied embeddings and losses are cut, too. The layers may be used by hand.
"""

from corsac.optimum.parallelization._context import Config, ParallelExecutionCtx
from corsac.optimum.parallelization._layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelCrossEntropyLoss,
    VocabParallelEmbedding,
    sharded_cross_entropy,
)
from corsac.optimum.parallelization._model import ParallelModel, parallelize_model

__all__ = [
    "ColumnParallelLinear",
    "Config",
    "ParallelExecutionCtx",
    "ParallelModel",
    "RowParallelLinear",
    "VocabParallelCrossEntropyLoss",
    "VocabParallelEmbedding",
    "parallelize_model",
    "sharded_cross_entropy",
]
