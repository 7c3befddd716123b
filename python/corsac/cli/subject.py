"""The graph that a command works on: of a model, a configuration, or a graph saved as text."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.parameter import UninitializedParameter

import corsac
from corsac import _core, fx
from corsac.cli.capture import graph_module
from corsac.cli.commands import CONVERTED
from corsac.cli.failure import Failure, file_error, first_line
from corsac.cli.inputs import accepted, random_inputs
from corsac.cli.model import FILES, keywords, load
from corsac.cli.progress import working
from corsac.cli.result import GRAPH
from corsac.cli.weights import weights_of, weights_option

#: Number of missing modules named in an error.
NAMED = 4
#: Beginnings of a text that is a graph, not a configuration.
GRAPH_TEXT = ("graph():", "graph v")


@dataclass(frozen=True)
class Subject:
    """A graph, with the module that runs it, unless only its text was given."""

    name: str
    graph: fx.Graph
    module: fx.GraphModule | None

    def runnable(self, why: str) -> fx.GraphModule:
        """The module; for the text of a graph, a new one if it calls only functions and methods. ``why``: the
        purpose, for the error message."""
        if self.module is not None:
            return self.module
        missing = self.missing()
        if missing:
            named = ", ".join(missing[:NAMED]) + (" and others" if missing[NAMED:] else "")
            raise Failure(
                f"{self.name} is the text of a graph, without the modules and weights that it names "
                f"({named}): {why} needs a model" + _model_in(Path(self.name))
            )
        return fx.GraphModule({}, self.graph).eval()

    def missing(self) -> list[str]:
        """The paths of modules and weights that the graph uses and does not have."""
        if self.module is not None:
            return []
        nodes = (node for node in self.graph.nodes if node.op in ("call_module", "get_attr"))
        return list(dict.fromkeys(node.target for node in nodes))


def original(reference: str, options: argparse.Namespace) -> torch.nn.Module:
    """The model that ``reference`` names; Python models are not captured yet."""
    if Path(reference).is_dir() or Path(reference).suffix in FILES:
        return captured(reference, options).runnable("running it")
    torch.manual_seed(options.seed)
    with weights_of(options, reference) as made, working(f"loading {reference}"):
        made.append(load(reference, keywords(options.kwargs)))
        _initialise(made[0], getattr(options, "input", None))
    return made[0]


def _initialise(model: torch.nn.Module, texts: list[str] | None) -> None:
    """Call a model with lazy parameters once, from which these get their shapes."""
    if not texts or not any(isinstance(own, UninitializedParameter) for own in model.parameters()):
        return
    with accepted(), torch.no_grad():
        model(*random_inputs(texts))


def _model_in(folder: Path) -> str:
    """A hint that names the model of a folder that this program wrote."""
    module = folder / "module.py"
    # The last class is that of the whole, after those of its parts.
    found = module.is_file() and re.findall(r"^class (\w+)\(", _read(module), re.MULTILINE)
    if not found or folder.is_absolute() or ".." in folder.parts:
        return ""
    return f", which is {'.'.join(folder.parts)}:{found[-1]}"


def captured(reference: str, options: argparse.Namespace, *, one_way: bool = False) -> Subject:
    """The graph that ``reference`` names; ``one_way`` is for commands that only inspect it, as for
    :func:`graph_module`."""
    path = Path(reference)
    if options.weights is not None and (path.is_dir() or _is_whole(path)):
        given = f"{weights_option(options)} {options.weights}"
        raise Failure(f"{given}: {reference} takes none; name the model itself")
    if options.kwargs and (path.is_dir() or path.suffix in FILES):
        raise Failure(f"{reference} is no callable, so --kwargs has nothing to go to")
    if path.is_dir():
        if not (path / GRAPH).is_file():
            raise Failure(f"{reference}: a folder without {GRAPH}, so not one that corsac wrote")
        return _from_text(reference, path / GRAPH)
    if path.suffix == ".safetensors":
        try:
            module = corsac.load(path, framework="torch")._model
            inputs = _core.ModelFile(str(path)).inputs
        except (corsac.CompileError, corsac.ModelFileError, OSError) as error:
            raise Failure(first_line(error, 1500)) from error
        placeholders = module.graph.find_nodes(op="placeholder")
        for node, (_, dtype, shape) in zip(placeholders, inputs, strict=True):
            sizes = tuple(size if isinstance(size, int) else None for size in shape)
            node.meta["declared_input"] = {"dtype": getattr(torch, dtype), "shape": sizes}
        return Subject(reference, module.graph, module)
    if path.suffix in CONVERTED:
        from corsac.cli.convert import read

        module = read(reference)
        return Subject(reference, module.graph, module)
    if path.suffix in (".toml", ".json", ".graph", ".txt"):
        if not path.is_file():
            raise Failure(f"{reference}: no such file")
        if path.suffix in (".txt", ".graph") and _is_graph_text(path):
            return _from_text(reference, path)
        if path.suffix == ".txt":
            raise Failure(
                f"{reference} is no graph: its text begins with neither graph() nor graph v1"
            )
        return _from_configuration(reference, path, options)
    module = graph_of(original(reference, options), options, one_way=one_way)
    return Subject(reference, module.graph, module)


def graph_of(
    model: torch.nn.Module, options: argparse.Namespace, *, one_way: bool = False
) -> fx.GraphModule:
    """The graph of a model: for all inputs or, where its control flow depends on them, for those on the
    command line."""
    with working("capturing the model"):
        texts = getattr(options, "input", None)
        inputs = (lambda: random_inputs(texts)) if texts else None
        return graph_module(model, inputs, one_way=one_way)


def _is_whole(path: Path) -> bool:
    """Whether a file contains its weights, or is the text of a graph, without modules."""
    return path.suffix in (".safetensors", *CONVERTED, ".txt") or (
        path.suffix == ".graph" and path.is_file() and _is_graph_text(path)
    )


def _is_graph_text(path: Path) -> bool:
    lines = (line.strip() for line in _read(path).splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith(GRAPH_TEXT)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: {file_error(error)}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"{path}: this is no text in UTF-8") from error


def _from_text(reference: str, path: Path) -> Subject:
    try:
        return Subject(reference, fx.Graph.parse(_read(path)), None)
    except ValueError as error:
        raise Failure(f"{path}: {error}") from error


def _from_configuration(reference: str, path: Path, options: argparse.Namespace) -> Subject:
    torch.manual_seed(options.seed)
    try:
        with weights_of(options, reference) as made:
            module = corsac.build(path)
            made.append(module)
    except (ValueError, OSError) as error:
        raise Failure(str(error)) from error
    return Subject(reference, module.graph, module.eval())
