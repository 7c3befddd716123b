"""The tree of a model's modules, with outputs, parameters and multiply-adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from corsac._messages.table import table
from corsac._models.example_inputs import gathered
from corsac.analysis._cost import CostReport, Count, _plain, cost, prefixes
from corsac.analysis._subject import captured
from corsac.fx import Graph, GraphModule

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One module of a model.

    Attributes:
        path: its qualified name; empty for the model itself.
        kind: its class.
        depth: number of modules that contain it.
        index: its number among the modules of this depth, from 1.
        output: type of its last call's result, as text; None if it is not called.
        parameters: number of elements of its parameters, with those of the modules in it.
        mult_adds: multiply-add operations, in it and the modules in it.
        trainable: whether some of its parameters have ``requires_grad``.
    """

    path: str
    kind: str
    depth: int
    index: int
    output: str | None
    parameters: int
    mult_adds: Count
    trainable: bool


class Summary:
    """The tree of a model's modules.

    Attributes:
        rows: the modules, the model first, in the order of their registration.
        cost: the costs of the model.
        parameters, trainable_parameters, parameter_bytes: elements and bytes of all parameters, each counted
            once.
    """

    def __init__(self, model: torch.nn.Module, report: CostReport, depth: int | None) -> None:
        self.cost = report
        own = {id(p): p for p in model.parameters()}.values()
        self.parameters = sum(p.numel() for p in own)
        self.trainable_parameters = sum(p.numel() for p in own if p.requires_grad)
        self.parameter_bytes = sum(p.numel() * p.element_size() for p in own)
        macs = {module.path: module.macs for module in report.modules()}
        outputs: dict[str, str] = {}
        for row in report.rows:
            if row.op.startswith("call_"):
                path = row.target if row.op == "call_module" else row.module
                outputs |= dict.fromkeys(prefixes(path), row.output)
        classes = _classes(model.graph) if isinstance(model, GraphModule) else {}
        counts: dict[int, int] = {}
        rows = []
        for path, module in model.named_modules(remove_duplicate=False):
            level = path.count(".") + 1 if path else 0
            if depth is not None and level > depth:
                continue
            counts[level] = counts.get(level, 0) + 1
            held = {id(p): p for p in module.parameters()}.values()
            rows.append(
                ModuleRow(
                    path=path,
                    kind=classes.get(path, type(module).__name__),
                    depth=level,
                    index=counts[level],
                    output=outputs.get(path),
                    parameters=sum(p.numel() for p in held),
                    mult_adds=macs.get(path, 0),
                    trainable=any(p.requires_grad for p in held),
                )
            )
        self.rows = tuple(rows)

    def to_dict(self) -> dict[str, Any]:
        """Modules and totals as plain values."""
        return {
            "parameters": self.parameters,
            "trainable_parameters": self.trainable_parameters,
            "parameter_bytes": self.parameter_bytes,
            "mult_adds": _plain(self.cost.macs),
            "modules": [
                {key: _plain(value) for key, value in asdict(row).items()} for row in self.rows
            ],
        }

    def to_dataframe(self) -> pandas.DataFrame:
        """One line a module. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.to_dict()["modules"])

    def __str__(self) -> str:
        cells = [("Layer (type:depth-idx)", "Output", "Param #", "Mult-Adds")]
        for row in self.rows:
            indent = "" if row.depth == 0 else "│    " * (row.depth - 1) + "├─"
            name = row.path.rpartition(".")[2]
            kind = f"{row.kind} ({name})" if name else row.kind
            cells.append(
                (
                    f"{indent}{kind}: {row.depth}-{row.index}",
                    row.output or "--",
                    f"{row.parameters:,}" if row.parameters else "--",
                    _grouped(row.mult_adds),
                )
            )
        lines = table(cells, left=range(2))
        rule = "=" * max(map(len, lines))
        lines = [rule, lines[0], rule, *lines[1:], rule]
        frozen = self.parameters - self.trainable_parameters
        lines.append(f"Total params: {self.parameters:,}")
        lines.append(f"Trainable params: {self.trainable_parameters:,}")
        lines.append(f"Non-trainable params: {frozen:,}")
        lines.append(f"Total mult-adds: {_grouped(self.cost.macs)}")
        lines.append(f"Params size (MB): {self.parameter_bytes / 1e6:.2f}")
        lines.append(f"Peak activations (MB): {self.cost.peak_bytes / 1e6:.2f}")
        for site in self.cost.unknown:
            lines.append(f"Not counted: {site.node} ({site.target}): {site.reason}")
        return "\n".join([*lines, rule])


def _classes(graph: Graph) -> dict[str, str]:
    """The names of the classes of modules that nodes are from, where a graph says so as text."""
    stacks = (node.meta.get("nn_module_stack") or {} for node in graph.nodes)
    entries = (entry for stack in stacks for entry in stack.values())
    return {
        path: cls.rpartition(".")[2]
        for path, cls in entries
        if isinstance(path, str) and isinstance(cls, str)
    }


def _grouped(count: Count) -> str:
    if isinstance(count, int):
        return f"{count:,}" if count else "--"
    return str(count)


def summary(
    model: torch.nn.Module | torch.export.ExportedProgram,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    depth: int | None = None,
) -> Summary:
    """The tree of a model's modules, each with its output, parameters and multiply-adds.

    The model is traced and types are propagated; nothing is run, unless the model cannot be traced for all
    inputs: it is then captured for these, as by :func:`corsac.capture`.

    Args:
        model: a model, a graph module, or a program of :func:`torch.export.export`, whose tree is that of the modules
            with weights.
        inputs, kwargs: as for :func:`corsac.analysis.propagate`.
        depth: greatest depth of modules in the tree; None for all.
    """
    found, inputs = captured(model, gathered(inputs), kwargs)
    report = cost(found, inputs)
    is_own = isinstance(model, torch.nn.Module) and not isinstance(model, torch.fx.GraphModule)
    return Summary(model if is_own else found, report, depth)
