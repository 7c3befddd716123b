"""Models for pipelines, and jobs that compare pipelines with whole models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kit.hugging_face import ARCHITECTURES, WORDS

#: Models of torchvision, with the sizes of their images.
IMAGES = {
    "resnet18": 64,
    "mobilenet_v2": 64,
    "densenet121": 64,
    "googlenet": 64,
    "vgg11": 64,
    "squeezenet1_0": 64,
    "shufflenet_v2_x0_5": 64,
    "efficientnet_b0": 64,
    "vit_b_16": 64,
}


class Perceptron(nn.Module):
    """Eight layers, of which the first is added to the last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))

    def forward(self, x):
        first = self.layers[0](x)
        y = torch.tanh(first)
        for layer in self.layers[1:]:
            y = torch.tanh(layer(y))
        return y + first


class Relayed(nn.Module):
    """Values of many kinds skip stages: a mask, whole numbers, a sum without gradient, sizes, a transposed tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 12)
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(6))
        self.out = nn.Linear(12, 20, bias=False)
        self.out.weight = self.table.weight
        self.scale = nn.Parameter(torch.ones(12), requires_grad=False)
        self.register_buffer("shift", torch.linspace(0, 1, 12))

    def forward(self, words, mask):
        keep = mask > 0
        with torch.no_grad():
            total = words.sum(1, keepdim=True).float() * self.scale[0]
        x = self.table(words)
        batch, length, width = x.shape
        first = x.transpose(1, 2)
        for at, layer in enumerate(self.layers):
            x = layer(x).relu() * self.scale
            if at % 2:
                x = x.masked_fill(~keep.unsqueeze(-1), 0.0) + self.shift
                x = x.view(batch * length, width).view(batch, -1, width)
        places = torch.arange(length).expand(batch, length)
        x = x + first.transpose(1, 2) + total.unsqueeze(-1) / 100 + places.unsqueeze(-1) / 10
        return {"words": self.out(x), "mask": keep, "counts": words.sum(1)}


class Frozen(Perceptron):
    """The first layers are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[:5].requires_grad_(False)


class Apart(nn.Module):
    """The last stage has a table whose rows meet no value of the first one before the result."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.table = nn.Embedding(5, 16)

    def forward(self, x, words):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return torch.sigmoid(x), torch.sigmoid(self.table(words) @ self.table.weight.t())


@dataclass(frozen=True)
class Case:
    """A model with its inputs.

    Attributes:
        make: constructs it.
        inputs: makes the keyword arguments for a batch of the given size.
        trains: whether it is in training mode.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], dict[str, Any]]
    trains: bool = True


def _hugging_face(name: str) -> Case:
    architecture = ARCHITECTURES[name]

    def inputs(batch: int) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        while not pairs or next(iter(pairs.values())).shape[0] < batch:
            more = architecture.inputs()
            for key in ("labels", "return_loss", "use_cache"):
                more.pop(key, None)
            if architecture.inputs.__name__ in ("translation", "speech"):
                more["decoder_input_ids"] = torch.randint(3, WORDS, (2, 7))
            pairs = {
                key: torch.cat([pairs[key], own]) if pairs else own for key, own in more.items()
            }
        found: dict[str, Any] = {key: own[:batch] for key, own in pairs.items()}
        if "use_cache" in architecture.inputs():
            found["use_cache"] = False
        return found

    return Case(architecture.make, inputs)


def _image(name: str) -> Case:
    def make() -> nn.Module:
        import torchvision

        more = {"init_weights": True} if name == "googlenet" else {}
        if name == "vit_b_16":
            more = {"image_size": IMAGES[name]}
        return getattr(torchvision.models, name)(num_classes=10, **more)

    return Case(make, lambda batch: {"x": torch.randn(batch, 3, IMAGES[name], IMAGES[name])})


def case_of(name: str) -> Case:
    """A model by name."""
    if name in IMAGES:
        return _image(name)
    if name in ("perceptron", "frozen"):
        make = Perceptron if name == "perceptron" else Frozen
        return Case(make, lambda batch: {"x": torch.randn(batch, 16)})
    if name == "apart":
        return Case(
            Apart,
            lambda batch: {"x": torch.randn(batch, 16), "words": torch.randint(5, (batch,))},
        )
    if name == "relayed":
        return Case(
            Relayed,
            lambda batch: {
                "words": torch.randint(20, (batch, 5)),
                "mask": torch.randint(2, (batch, 5)),
            },
        )
    return _hugging_face(name)


def made(name: str, batch: int, *, seed: int = 0) -> tuple[nn.Module, dict[str, Any]]:
    """A model without dropout, and a batch."""
    case = case_of(name)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = case.make().train(case.trains)
    for module in model.modules():
        if isinstance(module, nn.Dropout) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        for key, own in list(module.__dict__.items()):
            if isinstance(own, float) and ("drop" in key):
                setattr(module, key, 0.0)
        config = module.__dict__.get("config")
        for key, own in list(vars(config).items()) if config is not None else ():
            if isinstance(own, float) and "drop" in key:
                setattr(config, key, 0.0)
    return model, case.inputs(batch)


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors in a result."""
    if hasattr(result, "items"):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        return [own for part in result for own in tensors_of(part)]
    return [own for own in tree_leaves(result) if isinstance(own, torch.Tensor)]


def loss_of(result: Any, target: Any) -> torch.Tensor:
    """A loss of all results, which is a mean over the batch."""
    del target
    parts = [own for own in tensors_of(result) if own.is_floating_point() and own.requires_grad]
    return sum(own.sin().mean() for own in parts)


def _part(own: Any, at: int, count: int) -> Any:
    return torch.tensor_split(own, count)[at] if isinstance(own, torch.Tensor) else own


def compare(
    rank: int,
    name: str,
    schedule: str,
    stages: int | None,
    microbatches: int,
    batch: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Differences of a pipeline from the whole model, for the stages of this rank: results, gradients, buffers."""
    import torch.distributed as dist

    from corsac.distributed import pipeline

    model, inputs = made(name, batch)
    reference, _ = made(name, batch)
    torch.manual_seed(1 + rank)
    pipe = pipeline(
        model,
        (),
        inputs,
        stages=stages,
        schedule=schedule,
        microbatches=microbatches,
        loss_fn=loss_of,
        timeout=60,
        **options,
    )
    losses: list[torch.Tensor] = []
    result = pipe.step(losses=losses, **inputs)
    wanted = []
    for at in range(microbatches):
        part = {key: _part(own, at, microbatches) for key, own in inputs.items()}
        out = reference(**part)
        size = next(iter(part.values())).shape[0]
        (loss_of(out, None) * size / batch).backward()
        wanted.append(out)
    found: dict[str, Any] = {"stages": len(pipe.plan.stages), "parameters": 0, "gradient": 0.0}
    found["borders"] = [len(own.inputs) for own in pipe.plan.stages]
    known = dict(reference.named_parameters(remove_duplicate=False))
    for key, own in pipe.named_parameters():
        if known[key].grad is None:
            # A relayed zero is what the last stages of a pipeline have for none.
            difference = 0.0 if own.grad is None else own.grad.abs().max().item()
        else:
            assert own.grad is not None, key
            scale = max(1.0, known[key].grad.abs().max().item())
            difference = (own.grad - known[key].grad).abs().max().item() / scale
        found["gradient"] = max(found["gradient"], difference)
        found["parameters"] += 1
    buffers = dict(reference.named_buffers())
    found["buffer"] = max(
        (
            (own.double() - buffers[key].double()).abs().max().item()
            for module in pipe.modules
            for key, own in module.named_buffers()
            if key in buffers
        ),
        default=0.0,
    )
    if result is not None:
        ours, theirs = tensors_of(result), [tensors_of(own) for own in wanted]
        assert type(result) is type(wanted[0])
        assert len(ours) == len(theirs[0])
        found["result"] = 0.0
        for number, own in enumerate(ours):
            parts = [one[number] for one in theirs]
            if own.shape[1:] == parts[0].shape and own.shape[0] == microbatches:
                whole = torch.stack(parts)
            else:
                dim = next((d for d in range(own.dim()) if own.shape[d] != parts[0].shape[d]), 0)
                whole = torch.cat(parts, dim)
            assert own.shape == whole.shape and own.dtype == whole.dtype
            scale = max(1.0, whole.double().abs().max().item())
            difference = (own.double() - whole.double()).abs().max().item() / scale
            found["result"] = max(found["result"], difference)
        found["losses"] = max(
            abs(loss.item() - loss_of(own, None).item())
            for loss, own in zip(losses, wanted, strict=True)
        )
    dist.barrier()
    return found


class Looked(nn.Module):
    """Ends with a table of three rows, in which a word may not be."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.table = nn.Embedding(3, 8)

    def forward(self, x, words):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(x, words)

    def last(self, x, words):
        return x + self.table(words)


def _looked(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 8), torch.randint(3, (batch,))


def resized(rank: int) -> list[float]:
    """Differences of results for batches of other sizes, and of sentences of another length."""
    from corsac.distributed import pipeline

    del rank
    model, inputs = made("relayed", 8)
    reference, _ = made("relayed", 8)
    pipe = pipeline(model, (), inputs, microbatches=4, loss_fn=loss_of, timeout=60)
    found = []
    for batch, length in ((8, 5), (7, 5), (9, 3)):
        torch.manual_seed(batch)
        words, mask = torch.randint(20, (batch, length)), torch.randint(2, (batch, length))
        pipe.resize(words=words.to("meta"), mask=mask.to("meta"))
        for own in pipe.parameters():
            own.grad = None
        reference.zero_grad()
        result = pipe.step(words=words, mask=mask)
        wanted = reference(words, mask)
        loss_of(wanted, None).backward()
        known = dict(reference.named_parameters(remove_duplicate=False))
        found += [
            (own.grad - known[key].grad).abs().max().item()
            for key, own in pipe.named_parameters()
            if own.requires_grad
        ]
        if result is not None:
            found += [
                (a.double() - b.double()).abs().max().item()
                for a, b in zip(tensors_of(result), tensors_of(wanted), strict=True)
            ]
        evaluated = pipe(words=words, mask=mask)
        if result is not None:
            assert torch.equal(evaluated["words"], result["words"])
            assert not evaluated["words"].requires_grad
    return found


def trained(rank: int, schedule: str, stages: int) -> dict[str, Any]:
    """Weights after three steps of two accumulated batches each, which begin with other weights on each rank."""
    from corsac.distributed import pipeline

    model, inputs = made("relayed", 8, seed=rank)
    pipe = pipeline(
        model,
        (),
        inputs,
        schedule=schedule,
        stages=stages,
        microbatches=4,
        loss_fn=loss_of,
        timeout=60,
    )
    start = {key: own.clone() for key, own in pipe.state_dict().items()}
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        for at in range(2):
            torch.manual_seed(10 * step + at)
            words, mask = torch.randint(20, (8, 5)), torch.randint(2, (8, 5))
            pipe.step(words=words, mask=mask)
        optimizer.step()
    return {"start": start, "end": {key: own.clone() for key, own in pipe.state_dict().items()}}


def read_bytes() -> int:
    """Bytes that this process has read by system calls."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def from_file(rank: int, path: str, model: str) -> dict[str, Any]:
    """A pipeline of a model on meta, whose weights are read from a file."""
    import corsac.distributed._pipeline as module
    from corsac.distributed import pipeline

    torch.manual_seed(0)
    with torch.device("meta"):
        made_on_meta = {"perceptron": Perceptron, "looked": Looked}[model]()
    inputs = (torch.ones(8, 16),) if model == "perceptron" else _looked(8)
    counted: list[int] = []
    own = module.stage_weights

    def counting(*args: Any) -> Any:
        before = read_bytes()
        found = own(*args)
        counted.append(read_bytes() - before)
        return found

    module.stage_weights = counting
    try:
        pipe = pipeline(made_on_meta, inputs, weights=path, microbatches=4, timeout=60)
    finally:
        module.stage_weights = own
    result = pipe(*inputs)
    size = sum(own.numel() * own.element_size() for own in pipe.parameters())
    return {"read": counted[0], "own": size, "result": result, "names": list(pipe.state_dict())}


def from_plan(rank: int, path: str) -> Any:
    """The result of a pipeline made from a plan file."""
    from corsac.distributed import PipelinePlan, pipeline

    del rank
    model, inputs = made("relayed", 8)
    plan = PipelinePlan.load(path)
    plan.program.tensors.update(
        {key: own for key, own in (*model.named_parameters(), *model.named_buffers())}
    )
    pipe = pipeline(plan, (), inputs, microbatches=4, timeout=60)
    result = pipe(**inputs)
    with torch.no_grad():
        return None if result is None else (result, model(**inputs))


def mismatched(rank: int, kind: str) -> str:
    """The message of a pipeline whose ranks were given different things."""
    from corsac.distributed import PipelineError, pipeline

    model = Looked()
    if kind == "model" and rank == 1:
        model.layers[2] = nn.Linear(8, 8, bias=False)
    inputs = _looked(12 if kind == "batch" and rank == 1 else 8)
    if kind == "fails" and rank == 1:
        model.layers[2] = nn.Linear(8, 9)
    microbatches = 2 if kind == "schedule" and rank == 1 else 4
    try:
        pipeline(model, inputs, microbatches=microbatches, timeout=20)
    except (PipelineError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def warned(rank: int, trains: bool) -> list[str]:
    """The warnings of a pipeline of a model with a batch norm."""
    from corsac.distributed import pipeline

    del rank
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)).train(trains)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pipeline(model, torch.randn(8, 8), microbatches=4, timeout=60)
    return [str(own.message) for own in found if "batch norm" in str(own.message)]


def raising(rank: int, stage: int) -> tuple[str, float]:
    """The message of a step in which a stage raises, and its time in seconds."""
    import time

    from corsac.distributed import PipelineError, pipeline

    del rank
    torch.manual_seed(0)
    x, words = _looked(8)
    pipe = pipeline(Looked(), (x, words), microbatches=4, loss_fn=loss_of, timeout=30)
    words[5] = 7
    if stage == 0:
        x = x.to(torch.complex64)
        pipe._types = [
            [(shape, torch.complex64 if dtype.is_floating_point else dtype) for shape, dtype in own]
            for own in pipe._types
        ]
    begin = time.monotonic()
    try:
        pipe.step(x, words)
    except PipelineError as error:
        return str(error), time.monotonic() - begin
    return "no error", 0.0


def dying(rank: int) -> tuple[str, float]:
    """The message of a step in which the last rank ends, and its time in seconds."""
    import os
    import time

    import torch.distributed as dist

    from corsac.distributed import PipelineError, pipeline

    torch.manual_seed(0)
    x, words = _looked(8)
    pipe = pipeline(Looked(), (x, words), microbatches=4, loss_fn=loss_of, timeout=30)
    if rank == dist.get_world_size() - 1:
        pipe.modules[0].register_forward_pre_hook(lambda *_: os._exit(3))
    begin = time.monotonic()
    try:
        pipe.step(x, words)
    except PipelineError as error:
        return str(error), time.monotonic() - begin
    return "no error", 0.0


def unanswered(rank: int) -> tuple[str, float]:
    """The message of a step that one rank does not make."""
    import time

    from corsac.distributed import PipelineError, pipeline

    torch.manual_seed(0)
    x, words = _looked(8)
    pipe = pipeline(Looked(), (x, words), microbatches=4, loss_fn=loss_of, timeout=5)
    begin = time.monotonic()
    if rank == 1:
        return "", 0.0
    try:
        pipe.step(x, words)
    except PipelineError as error:
        return str(error), time.monotonic() - begin
    return "no error", 0.0
