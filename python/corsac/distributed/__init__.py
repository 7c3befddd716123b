"""Models on several processes: pipelines, parts of weights and of batches, planned on the graph and run by
:mod:`torch.distributed`.

::

    torch.distributed.init_process_group("gloo")
    pipe = corsac.distributed.pipeline(model, x, schedule="1f1b", microbatches=8, loss_fn=loss)
    optimizer = torch.optim.AdamW(pipe.parameters())
    pipe.step(x, target=y)
    optimizer.step()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac.distributed._buckets import Bucket, average_gradients, plan_buckets
    from corsac.distributed._data_parallel import DataParallel, data_parallel
    from corsac.distributed._errors import (
        DistributedError,
        ParallelError,
        PipelineError,
        PlanMismatchError,
    )
    from corsac.distributed._parallel import Parallel
    from corsac.distributed._parallel_plan import ParallelPlan, plan_parallel
    from corsac.distributed._parallelize import parallelize
    from corsac.distributed._pipeline import Pipeline, pipeline
    from corsac.distributed._plan import PipelinePlan, plan_pipeline
    from corsac.distributed._planning.matching import MatchingError
    from corsac.distributed._planning.measured import StepSeconds, measure_step
    from corsac.distributed._planning.measured_network import measure_network
    from corsac.distributed._planning.mesh_plan import MeshPlan, MeshRank
    from corsac.distributed._planning.mesh_plans import MeshPlans
    from corsac.distributed._planning.network import Network
    from corsac.distributed._planning.search import plan_mesh
    from corsac.distributed._planning.simulation import SimulatedStep, simulate_step
    from corsac.distributed._sharded_optimizer import ShardedOptimizer

__all__ = [
    "Bucket",
    "DataParallel",
    "DistributedError",
    "MatchingError",
    "MeshPlan",
    "MeshPlans",
    "MeshRank",
    "Network",
    "Parallel",
    "ParallelError",
    "ParallelPlan",
    "Pipeline",
    "PipelineError",
    "PipelinePlan",
    "PlanMismatchError",
    "ShardedOptimizer",
    "SimulatedStep",
    "StepSeconds",
    "average_gradients",
    "data_parallel",
    "measure_network",
    "measure_step",
    "parallelize",
    "pipeline",
    "plan_buckets",
    "plan_mesh",
    "plan_parallel",
    "plan_pipeline",
    "simulate_step",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_buckets": ("Bucket", "average_gradients", "plan_buckets"),
        "_data_parallel": ("DataParallel", "data_parallel"),
        "_errors": (
            "DistributedError",
            "ParallelError",
            "PipelineError",
            "PlanMismatchError",
        ),
        "_parallel": ("Parallel",),
        "_parallel_plan": ("ParallelPlan", "plan_parallel"),
        "_parallelize": ("parallelize",),
        "_pipeline": ("Pipeline", "pipeline"),
        "_plan": ("PipelinePlan", "plan_pipeline"),
        "_planning.matching": ("MatchingError",),
        "_planning.measured": ("StepSeconds", "measure_step"),
        "_planning.measured_network": ("measure_network",),
        "_planning.mesh_plan": ("MeshPlan", "MeshRank"),
        "_planning.mesh_plans": ("MeshPlans",),
        "_planning.network": ("Network",),
        "_planning.search": ("plan_mesh",),
        "_planning.simulation": ("SimulatedStep", "simulate_step"),
        "_sharded_optimizer": ("ShardedOptimizer",),
    },
)
