"""``corsac plan``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from corsac.analysis import Machine
from corsac.analysis._machine import machine
from corsac.cli.failure import Failure, check_file, first_line, written
from corsac.cli.inputs import Input, accepted
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.subject import original
from corsac.distributed import DistributedError, MeshPlans, plan_mesh
from corsac.distributed._planning.meshes import Mesh, MeshCosts


def run(options: argparse.Namespace) -> bool:
    """Find the best mesh of ranks for training a model."""
    if options.draw:
        check_file(options.draw, (".html", ".svg"), "--draw")
    if options.out:
        check_file(options.out, (".json",))
    if not options.input:
        raise Failure("a plan needs the batch of a step; give --input SHAPE for each input")
    if options.meta and options.weights is not None:
        raise Failure("--meta makes no weights, so --weights has nothing to go to")
    wanted = None if options.mesh is None else _mesh(options.mesh, options.ranks)
    with _parameters_on_meta() if options.meta else nullcontext():
        model = original(options.model, options).train()
    inputs = tuple(map(_on_meta, options.input))
    captured_with = tuple(map(_on_meta, options.capture)) or None
    try:
        with accepted(DistributedError, ValueError), working("planning"):
            plans = plan_mesh(
                model,
                inputs,
                ranks=options.ranks,
                bandwidth=options.bandwidth,
                latency=options.latency,
                memory=options.memory,
                machine=_machine(options),
                microbatches=options.microbatches,
                schedules=options.schedule or ("1f1b",),
                optimizer=options.optimizer,
                sequence_parallel=options.sequence_parallel,
                captured_with=captured_with,
            )
    except (DistributedError, ValueError) as error:
        raise Failure(f"the model cannot be planned: {first_line(error, 1500)}") from error
    if options.json:
        print_json(plans.to_dict())
    else:
        print(plans.text(options.show))
    if not plans.found:
        raise Failure("no mesh can be used")
    chosen = plans.best() if wanted is None else _chosen(plans, wanted)
    if options.draw:
        with written(f"--draw {options.draw}"):
            plans.draw(options.draw, chosen, options.model)
    if options.out:
        try:
            with written(f"--out {options.out}"):
                plans.plan(chosen).save(options.out)
        except DistributedError as error:
            raise Failure(f"--out {options.out}: {first_line(error)}") from error
    if not options.json:
        for path in filter(None, (options.draw, options.out)):
            print(f"{chosen.mesh} written to {path}")
    return True


def _mesh(text: str, ranks: list[int]) -> Mesh:
    found = re.fullmatch(r"(\d+)\s*[x×]\s*(\d+)\s*[x×]\s*(\d+)", text)
    if found is None or "0" in found.groups():
        raise Failure(
            f"--mesh {text}: expected the ranks of pipeline, tensor and data, such as 4x2x8"
        )
    mesh = Mesh(*map(int, found.groups()))
    if mesh.ranks not in ranks:
        raise Failure(f"--mesh {text} has {mesh.ranks} ranks, which are none of --ranks")
    return mesh


def _chosen(plans: MeshPlans, mesh: Mesh) -> MeshCosts:
    for own in plans.found:
        if own.mesh == mesh:
            return own
    raise Failure(f"--mesh {mesh} is not possible: {plans.refused[mesh]}")


def _machine(options: argparse.Namespace) -> Machine:
    """The speed of a rank, of which what is not given is measured on this machine."""
    if options.flops is not None and options.memory_bandwidth is not None:
        return Machine(options.flops / 1e9, options.memory_bandwidth / 1e9)
    own = machine()
    return Machine(
        own.gflops if options.flops is None else options.flops / 1e9,
        own.gbytes if options.memory_bandwidth is None else options.memory_bandwidth / 1e9,
    )


def _on_meta(text: str) -> Any:
    """An input of which only the type is needed; an expression has its value."""
    given = Input.parse(text)
    if isinstance(given, Input):
        return torch.empty(given.shape, dtype=given.dtype, device="meta")
    return given.random()


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Put parameters on ``meta`` as soon as they are a module's, before they are filled. Buffers are as usual."""
    register = nn.Module.register_parameter

    def on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        register(self, name, param)
        if param is not None:
            with torch.no_grad():
                moved = nn.Parameter(param.to("meta"), param.requires_grad)
            self._parameters[name] = moved

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
