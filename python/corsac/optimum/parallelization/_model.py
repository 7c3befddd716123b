"""Models that are planned and cut in their first call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from corsac.distributed import Parallel, ParallelError, parallelize
from corsac.distributed._parallel_plan import plan_program
from corsac.distributed._program import program_of
from corsac.distributed._rank_module import share_parts
from corsac.distributed._values import input_types
from corsac.fx._module_attributes import _assign_attr
from corsac.optimum.parallelization._context import Config, ParallelExecutionCtx


class ParallelModel(nn.Module):
    """A model of which each rank has a part of each weight, once it was called: its parameters are those of the plan that
    the first call makes. All ranks call it with the same arguments. Another plan is made for the other training mode,
    with the same parameters.

    Args:
        model: the whole model, which may be on ``meta``.
        ctx: the process group.
        config: how it is cut.
        weights: a safetensors file, or a folder of them, of which each rank reads its parts.
    """

    def __init__(
        self,
        model: nn.Module,
        ctx: ParallelExecutionCtx,
        config: Config,
        weights: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        state = self.__dict__
        state["model"], state["ctx"], state["config"], state["weights"] = (
            model,
            ctx,
            config,
            weights,
        )
        state["parts"] = {}
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.training not in self.parts:
            self.parts[self.training] = self._made(args, kwargs)
        return self.parts[self.training](*args, **kwargs)

    def _made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parallel:
        if self.model.training != self.training:
            self.model.train(self.training)
        config, group = self.config, self.ctx.tp_group
        known: Parallel | None = next(iter(self.parts.values()), None)
        model: Any = self.model
        if known is not None:
            # The same weights are cut in the same places.
            program = program_of(self.model, args, kwargs, None)
            common = {
                name
                for name, weight in known.plan.program.weights.items()
                if name in program.weights and weight.kind != "constant"
            }
            shards = known.plan.shards
            model = plan_program(
                program,
                input_types(program.arguments.tensors(args, kwargs)),
                self.ctx.size,
                True,
                sorted(common - shards.keys()),
                {name: dim for name, (dim, _) in shards.items() if name in common},
                config.uneven,
                config.enable_sequence_parallel,
            )
            for name in common:
                if model.shards.get(name) != shards.get(name):
                    raise ParallelError(
                        f"{name} is cut in other places in training than in evaluation: give it by shard="
                    )
        own = parallelize(
            model,
            args,
            kwargs,
            group,
            sequence_parallel=config.enable_sequence_parallel,
            replicate=config.replicate,
            shard=config.shard,
            uneven=config.uneven,
            weights=self.weights,
        )
        own.to(self.ctx.current_device)
        if known is None:
            share_parts(self, own)
            return own
        first = dict([*known.named_parameters(), *known.named_buffers()])
        for name, value in [*own.named_parameters(), *own.named_buffers()]:
            if name in first:
                _assign_attr(first[name], own, name)
            else:
                _assign_attr(value, known, name)
        return own


def parallelize_model(
    model: nn.Module | str,
    parallel_ctx: ParallelExecutionCtx,
    *model_args: Any,
    skip_load_weights: bool = False,
    **kwargs: Any,
) -> ParallelModel:
    """A model that is cut among the ranks of a group in its first call.

    Args:
        model: a module, whose weights may be on ``meta``; or a folder with the configuration of a model of
            ``transformers`` (``config.json``, which names its class) and its weights as safetensors files.
        parallel_ctx: the process group.
        model_args: further arguments of the class, for a folder.
        skip_load_weights: whether the weights of a folder stay random: those of its class, on each rank the same seed
            provided.
        kwargs: fields of :class:`Config`, or else of the configuration of the model.

    Raises:
        ValueError: there is no such folder, or its configuration names no class.
    """
    config = Config()
    for name in [own for own in kwargs if hasattr(config, own)]:
        setattr(config, name, kwargs.pop(name))
    if isinstance(model, nn.Module):
        if kwargs or model_args:
            given = ", ".join([*map(repr, model_args), *kwargs])
            raise TypeError(f"a module takes no further arguments, got {given}")
        return ParallelModel(model, parallel_ctx, config)
    folder = Path(model)
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"expected a folder with a config.json, got {model}: nothing is downloaded"
        )
    import transformers

    settings, rest = transformers.AutoConfig.from_pretrained(
        folder, local_files_only=True, return_unused_kwargs=True, **kwargs
    )
    classes = settings.architectures or []
    kind = getattr(transformers, classes[0], None) if classes else None
    if kind is None:
        raise ValueError(f"{folder / 'config.json'} names no class of transformers: {classes}")
    if skip_load_weights:
        return ParallelModel(kind(settings, *model_args, **rest).eval(), parallel_ctx, config)
    made = kind(settings, *model_args, **rest).eval()
    # One for all modules that have it.
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for part in made.modules():
        for name, own in list(part._parameters.items()):
            if own is not None:
                if own not in moved:
                    on_meta = torch.empty_like(own, device="meta")
                    moved[own] = nn.Parameter(on_meta, own.requires_grad)
                part._parameters[name] = moved[own]
    return ParallelModel(made, parallel_ctx, config, folder)


__all__ = ["ParallelModel", "parallelize_model"]
