"""The command line."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from corsac import __version__
from corsac.cli.values import (
    above_zero,
    not_negative,
    numbers,
    per_second,
    positive,
    seconds,
    size_bytes,
    tolerance,
    whole,
)
from corsac.distributed._planning.names import SCHEDULES


@dataclass(frozen=True)
class Command:
    """A subcommand; the function ``run`` of ``corsac.cli.NAME`` implements it."""

    name: str
    summary: str
    description: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors that suggest the likely intended word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        # Shapes with a negative size, too, are values, which their option refuses itself.
        self._negative_number_matcher = re.compile(r"-\d[\d.,]*(:\w+)?$")

    def parse_args(
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = COMMAND_PARSERS[options.command]
            near = _meant(unknown[0].split("=")[0], command._option_string_actions)
            command.error(f"unexpected argument {unknown[0]!r}{near}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if action.dest == "command":
            raise argparse.ArgumentError(
                None, f"there is no command {value!r}{_meant(value, action.choices)}"
            )
        known = ", ".join(map(str, action.choices))
        raise argparse.ArgumentError(action, f"expected one of {known}, got {value!r}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"corsac: error: {message} ({self.prog} --help shows how)\n")


def _meant(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, [*known], n=1, cutoff=0.7)
    return f": did you mean {near[0]!r}?" if near else ""


#: Parsers by command.
COMMAND_PARSERS: dict[str, argparse.ArgumentParser] = {}


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    program = Parser(
        prog="corsac",
        description="torch.fx in Rust: capture, transform and run PyTorch programs.",
    )
    program.add_argument("--version", action="version", version=f"corsac {__version__}")
    commands = program.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        COMMAND_PARSERS[command.name] = subparser
        command.add_arguments(subparser)
        subparser.add_argument(
            "--traceback",
            action="store_true",
            help="on an error, show where it comes from",
        )
    return program


# -- arguments of several commands ---------------------------------------------------------------

MODEL = (
    "module:callable, file.py:callable or a file with one class; a configuration (*.toml, *.json, *.graph); a model file "
    "(*.safetensors); a graph saved as text; or a folder that `corsac optimize --out` wrote"
)


def _model(parser: argparse.ArgumentParser, *names: str, weights_option: str = "--weights") -> None:
    for name in names or ("model",):
        parser.add_argument(name, metavar=name.upper(), help=MODEL)
    parser.add_argument(
        "--kwargs",
        action="append",
        default=[],
        metavar="JSON|KEY=VALUE",
        help="arguments for the callable: a JSON object, or key=value (may be repeated)",
    )
    parser.add_argument(
        "--seed",
        type=whole,
        default=0,
        metavar="N",
        help="seed for the model's weights and the inputs (0)",
    )
    _weights(parser, weights_option)


def _weights(parser: argparse.ArgumentParser, option: str = "--weights") -> None:
    parser.add_argument(
        option,
        dest="weights",
        metavar="FILE",
        help="weights for the model: *.safetensors, or a state dict that torch.save wrote",
    )


def _input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SHAPE[:DTYPE]|EXPRESSION",
        help="a positional input: its shape, such as 1,3,224,224 or 1,16:int64, or an expression of "
        "Python, such as 'torch.arange(16)[None]'; once per input",
    )


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs to read")


# -- the arguments of each command -----------------------------------------------------------------


def _optimize(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write the result: an importable module with its weights, and graph.txt",
    )
    parser.add_argument(
        "--repeat",
        type=positive,
        metavar="N",
        help="timed calls of the model before and after (20, fewer where they take over 20 s)",
    )
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        default=1e-4,
        metavar="X",
        help="largest difference accepted, as a part of the largest output (1e-4)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the model before and after every pass, and name the first one, and the change "
        "that it made, after which the result differs",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="list every place where a pass did something, or could have, and why it did not",
    )
    parser.add_argument(
        "--randomize-stats",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="give batch norms random weights and measured statistics; by default those of a "
        "model whose batch norms are all untrained, since folding them would prove nothing",
    )
    _json(parser)


def _show(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--format",
        choices=("graph", "table", "code", "lossless"),
        help="what to print (graph); of model files, program, too",
    )
    parser.add_argument(
        "--lossless", action="store_true", help="the text that reads back as the same graph"
    )
    parser.add_argument(
        "--sources", action="store_true", help="show the line of the program that made each node"
    )
    _json(parser)


def _table(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    _json(parser)


def _code(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="with the user's source lines as comments"
    )
    _json(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    _model(parser, "before", "after")
    _input(parser)
    _json(parser)


def _draw(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--out", metavar="FILE", required=True, help="the picture: *.html, *.svg or *.dot"
    )
    parser.add_argument(
        "--overlay",
        choices=("time", "bytes", "flops"),
        help="colour nodes by what they cost on the given input",
    )
    parser.add_argument(
        "--hide-shape-arithmetic",
        action="store_true",
        help="leave out what reads sizes of tensors, or computes numbers of them",
    )
    _json(parser)


def _ops(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    _json(parser)


def _summary(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--depth",
        type=not_negative,
        metavar="N",
        help="how deep to go into modules inside (all of them)",
    )
    _json(parser)


def _profile(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--repeat", type=positive, default=10, metavar="N", help="runs of the model (10)"
    )
    _json(parser)


def _split(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument("--parts", type=positive, default=2, metavar="N", help="how many parts (2)")
    parser.add_argument(
        "--by",
        choices=("flops", "bytes", "measured"),
        default="flops",
        help="what counts: operations (flops), bytes read and written, or measured times",
    )
    parser.add_argument(
        "--memory",
        type=size_bytes,
        metavar="SIZE",
        help="memory for each part, such as 512M, 16G or 16Gi (no bound)",
    )
    parser.add_argument(
        "--bandwidth",
        type=size_bytes,
        metavar="SIZE",
        help="bytes per second from part to part, such as 10G; without it, traffic takes no time",
    )
    parser.add_argument(
        "--training",
        choices=("sgd", "momentum", "adam"),
        help="count memory for gradients, this optimizer and microbatches in flight",
    )
    parser.add_argument(
        "--microbatches",
        type=positive,
        metavar="N",
        help="how many microbatches a step has; at most so many are in flight",
    )
    parser.add_argument(
        "--draw", metavar="FILE", help="draw the model in colours of its parts: *.html or *.svg"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="write the parts, importable, and their weights"
    )
    _json(parser)


def _plan(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--ranks",
        type=numbers,
        required=True,
        metavar="N[..M]",
        help="how many ranks: 8, or 6,12, or 8..64 for 8, 16, 32 and 64",
    )
    parser.add_argument(
        "--bandwidth",
        type=size_bytes,
        required=True,
        metavar="SIZE",
        help="bytes per second from one rank to another, such as 12G",
    )
    parser.add_argument(
        "--latency",
        type=seconds,
        default=10e-6,
        metavar="TIME",
        help="what a message takes besides (10us)",
    )
    parser.add_argument(
        "--memory",
        type=size_bytes,
        metavar="SIZE",
        help="memory of each rank, such as 16G or 80Gi (no bound)",
    )
    parser.add_argument(
        "--flops",
        type=per_second,
        metavar="N",
        help="operations a second of each rank, such as 1T (as measured on this machine)",
    )
    parser.add_argument(
        "--memory-bandwidth",
        type=size_bytes,
        metavar="SIZE",
        help="bytes a second that each rank reads and writes (as measured on this machine)",
    )
    parser.add_argument(
        "--microbatches",
        type=numbers,
        default=[1, 2, 4, 8, 16, 32, 64],
        metavar="N[..M]",
        help="the numbers of microbatches to try, as for --ranks (1..64)",
    )
    parser.add_argument(
        "--schedule",
        action="append",
        choices=SCHEDULES,
        help="a schedule to try (1f1b; may be repeated)",
    )
    parser.add_argument(
        "--optimizer",
        choices=("none", "sgd", "momentum", "adam"),
        default="adam",
        help="whose states need memory (adam)",
    )
    parser.add_argument(
        "--sequence-parallel",
        action="store_true",
        help="ranks that share a stage keep parts of sequences between layers",
    )
    parser.add_argument(
        "--meta", action="store_true", help="make the model without memory for its parameters"
    )
    parser.add_argument(
        "--capture",
        action="append",
        default=[],
        metavar="SHAPE[:DTYPE]",
        help="a smaller input to capture the model with, such as 2,16:int64, which is computed; once per input (two items "
        "of --input)",
    )
    parser.add_argument(
        "--mesh",
        metavar="PxTxD",
        help="the mesh that is drawn and written: ranks of pipeline, tensor and data, such as 4x2x8 (the fastest)",
    )
    parser.add_argument(
        "--show",
        type=positive,
        default=3,
        metavar="N",
        help="how many meshes of each number of ranks are shown (3)",
    )
    parser.add_argument(
        "--draw", metavar="FILE", help="draw the step of the mesh over time: *.html or *.svg"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write the plan of the mesh for programs of torchrun: *.json"
    )
    _json(parser)


def _lower(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--to", default="onnxruntime", metavar="BACKEND", help="onnxruntime, openvino, ..."
    )
    parser.add_argument(
        "--preview", action="store_true", help="only say what would go where, and why"
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail if a call stays on the host, naming the first"
    )
    parser.add_argument(
        "--min-nodes",
        type=positive,
        default=1,
        metavar="N",
        help="leave parts with fewer computations on the host (1)",
    )
    parser.add_argument("--out", metavar="FILE", help="write the whole model as ONNX: *.onnx")
    parser.add_argument(
        "--repeat", type=positive, default=5, metavar="N", help="timed calls before and after (5)"
    )
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        default=1e-4,
        metavar="X",
        help="largest difference accepted, as a part of the largest output (1e-4)",
    )
    _json(parser)


def _save(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="the file: *.safetensors")
    _json(parser)


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model: *.onnx")
    parser.add_argument("out", metavar="OUT", help="the file: *.safetensors")
    _input(parser)
    _json(parser)


def _quantize(parser: argparse.ArgumentParser) -> None:
    _model(parser, weights_option="--state")
    parser.set_defaults(weights_option="--state")
    _input(parser)
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="samples of the inputs: *.npz, *.npy or *.safetensors with an array for each input; batches have the size of "
        "the first --input",
    )
    parser.add_argument(
        "--dynamic", action="store_true", help="find the range of each row of inputs in each call"
    )
    parser.add_argument(
        "--dtype",
        choices=("int8", "bfloat16"),
        default="int8",
        help="int8, with bfloat16 for layers that are faster in that alone, or bfloat16 for all (int8)",
    )
    parser.add_argument(
        "--weights",
        dest="form",
        metavar="FORM",
        help="only weights are integers, unless --dynamic is given: int8, int4:32, int4:64 or int4:128",
    )
    parser.add_argument(
        "--max-drop",
        type=tolerance,
        metavar="X",
        help="how far the metric may drop: layers are left float until it does not; without --metric it is "
        "how often the largest output stays the same, in percent",
    )
    parser.add_argument(
        "--metric",
        metavar="FUNCTION",
        help="file.py:function or module:function of a model, larger is better",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="NAME",
        help="a module that stays float with all inside, or a pattern such as 'layer4.*' (may be repeated)",
    )
    parser.add_argument(
        "--method",
        choices=("minmax", "percentile", "entropy", "mse"),
        default="mse",
        help="how ranges of inputs are chosen (mse)",
    )
    parser.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time the layers, and leave those float that are not faster; the default without --weights",
    )
    parser.add_argument("--report", metavar="FILE", help="write the report: *.html or *.json")
    parser.add_argument("--out", metavar="FILE", required=True, help="the file: *.safetensors")
    _json(parser)


def _minify(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="the backend with the fault: a name, file.py:function or module:function",
    )
    parser.add_argument(
        "--look",
        choices=("compile", "run", "accuracy"),
        default="accuracy",
        help="at compiling, also at calls, also at whether results are PyTorch's (accuracy)",
    )
    parser.add_argument("--options", metavar="JSON", help="options for the backend: a JSON object")
    parser.add_argument(
        "--tolerance",
        type=above_zero,
        metavar="X",
        help="what an element may differ by, as a part of itself (by element type; float32 1e-4)",
    )
    parser.add_argument(
        "--seconds",
        type=above_zero,
        default=60.0,
        metavar="N",
        help="how long it may take (60); what was reached by then is the result",
    )
    parser.add_argument(
        "--hang-seconds",
        type=above_zero,
        default=30.0,
        metavar="N",
        help="how long the backend may take before it counts as one that hangs (30)",
    )
    parser.add_argument(
        "--out", default="fault.py", metavar="FILE", help="the script to write (fault.py)"
    )
    _json(parser)


def _nothing(parser: argparse.ArgumentParser) -> None:
    """For commands on model files, which ``corsac.cli.main`` passes on to the native program."""


def _cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all entries")
    _json(parser)


def _bytecode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "function",
        metavar="FUNCTION",
        help="file.py:function, file.py:Class.method or module:function; a file or module alone is "
        "its top level",
    )
    parser.add_argument("--info", action="store_true", help="print the fields of the code object")
    parser.add_argument(
        "--depth",
        type=not_negative,
        metavar="N",
        help="how deep to go into functions inside (all of them)",
    )
    _json(parser)


def _completions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="whose script to print")


def _build(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="*.toml, *.json or *.graph")
    parser.add_argument(
        "--out", metavar="DIR", help="write the model: an importable module with its weights"
    )
    parser.add_argument(
        "--seed", type=whole, default=0, metavar="N", help="seed for the model's weights (0)"
    )
    _weights(parser)
    parser.add_argument(
        "--max-gib",
        type=above_zero,
        default=16.0,
        metavar="N",
        help="refuse a model whose weights, or whose inputs, take more than this many GiB (16)",
    )
    _json(parser)


def _describe(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--format", choices=("graph", "toml", "json"), help="the notation (graph, or as --out says)"
    )
    parser.add_argument("--out", metavar="FILE", help="write a file *.graph, *.toml or *.json")
    _json(parser)


COMMANDS = (
    Command(
        "optimize",
        "capture a model, run the passes, check the result and measure it",
        """\
Capture a PyTorch model as a graph, remove what inference does not need (dropout, batch norms that
can be folded into the convolution before them, repeated and unused computations), check the result
against the original on the given input, and print what each pass did and what was gained.
""",
        """\
examples:
  corsac optimize torchvision.models:resnet50 --input 1,3,224,224 --out out/resnet50
  corsac optimize model.py:Net --kwargs hidden=64 --kwargs name=small --input 8,16
  corsac optimize model.py:Net --kwargs '{"hidden": 64}' --input 1,16:int64 --input 1,16:bool

exit codes: 0 done; 1 the result differs from the original; 2 the request cannot be met
""",
        _optimize,
    ),
    Command(
        "show",
        "print the graph of a model",
        "Capture a model and print its graph, as print(graph) does.",
        """\
examples:
  corsac show torchvision.models:resnet18
  corsac show model.py:Net --lossless > net.txt
  corsac show net.txt --json
""",
        _show,
    ),
    Command(
        "table",
        "print the nodes of a model as a table",
        "Capture a model and print its nodes in columns: opcode, name, target, args, kwargs.",
        "example:\n  corsac table torchvision.models:resnet18\n",
        _table,
    ),
    Command(
        "code",
        "print the Python code of a model's graph",
        "Capture a model and print the Python code that its graph becomes.",
        "example:\n  corsac code torchvision.models:resnet18\n",
        _code,
    ),
    Command(
        "diff",
        "show what differs between two graphs",
        """\
Show what has to change in one graph for it to become another. Nodes are matched by what they
compute before they are matched by name.
""",
        """\
example:
  corsac diff torchvision.models:resnet18 out/resnet18

exit codes: 0 the graphs are the same; 1 they differ; 2 the request cannot be met
""",
        _diff,
    ),
    Command(
        "draw",
        "draw the graph of a model",
        """\
Draw a model's graph as one HTML file that opens offline, as an SVG picture, or as DOT text. With
--input, nodes show their shapes, and --overlay colours them by what they cost.
""",
        """\
examples:
  corsac draw torchvision.models:resnet50 --out resnet50.html
  corsac draw torchvision.models:resnet50 --input 1,3,224,224 --overlay time --out resnet50.html
""",
        _draw,
    ),
    Command(
        "summary",
        "print the modules of a model",
        """\
Print the tree of a model's modules, with what each gives on the given input, its parameters and its
multiplications, without running it.
""",
        "example:\n  corsac summary torchvision.models:resnet50 --input 1,3,224,224 --depth 2\n",
        _summary,
    ),
    Command(
        "ops",
        "count operations, bytes and memory",
        """\
Count the arithmetic, the memory traffic and the peak memory of a model on the given input, by node
and by module, without running it.
""",
        "example:\n  corsac ops torchvision.models:resnet50 --input 1,3,224,224\n",
        _ops,
    ),
    Command(
        "profile",
        "measure where the time goes",
        "Run a model node by node on the given input and print how long each node takes.",
        "example:\n  corsac profile torchvision.models:resnet50 --input 1,3,224,224\n",
        _profile,
    ),
    Command(
        "split",
        "split a model into parts",
        """\
Split a model into parts that run one after the other, of which the slowest is as fast as possible, and
print what each costs.
""",
        """\
examples:
  corsac split torchvision.models:vit_b_16 --input 1,3,224,224 --parts 4 --out out/parts
  corsac split torchvision.models:densenet121 --input 8,3,224,224 --parts 4 --memory 2G --draw parts.html
  corsac split model.py:Net --input 8,16 --training adam --memory 16G --bandwidth 10G
""",
        _split,
    ),
    Command(
        "plan",
        "plan training on more machines than there are",
        """\
Find the best mesh of ranks for training a model, without running it: how many ranks have different stages of
a pipeline, how many share a stage by tensor parallelism, and how many have copies. Steps are simulated.
--input is the batch of a step.
""",
        """\
examples:
  corsac plan torchvision.models:resnet50 --input 256,3,224,224 --ranks 8..64 --bandwidth 12G --memory 16G
  corsac plan model.py:llama --meta --input 64,4096:int64 --capture 2,16:int64 --ranks 8..1024 \\
      --bandwidth 25G --latency 5us --flops 100T --memory-bandwidth 2T --memory 80G --draw step.html
  corsac plan model.py:Net --input 64,128 --ranks 8 --bandwidth 1G --mesh 2x2x2 --out plan.json
""",
        _plan,
    ),
    Command(
        "lower",
        "run what a runtime supports on that runtime",
        """\
Put the parts of a model that a runtime (ONNX Runtime, OpenVINO) supports there, leave the rest on the
host, check the result against the original and measure both. Or write the model as an ONNX file.
""",
        """\
examples:
  corsac lower torchvision.models:resnet50 --input 1,3,224,224 --to onnxruntime
  corsac lower torchvision.models:vit_b_16 --input 1,3,224,224 --to openvino --preview
  corsac lower torchvision.models:resnet50 --input 1,3,224,224 --out resnet50.onnx

exit codes: 0 done; 1 the result differs from the original; 2 the request cannot be met
""",
        _lower,
    ),
    Command(
        "minify",
        "find the smallest graph with a fault of a backend",
        """\
Look for a fault of a backend in a model (it raises, crashes, hangs, or gives other results than PyTorch),
make the graph, its inputs and weights as small as they can be with the same fault, and write a script that
shows it, with the graph's text beside it. MODEL may be such a script, which is made smaller still.
""",
        """\
examples:
  corsac minify torchvision.models:resnet50 --input 1,3,224,224 --backend openvino
  corsac minify model.py:Net --input 8,16 --backend backends.py:mine --look run --out mine.py
  corsac minify mine.py --seconds 600 --out smaller.py

exit codes: 0 a script shows the fault; 1 there is none, or no script shows it; 2 the request cannot be met
""",
        _minify,
    ),
    Command(
        "build",
        "build a model from a configuration",
        """\
Build a model from a configuration file, run it once where the file says the shapes of its inputs,
and print what it is made of.
""",
        "example:\n  corsac build model.toml --out out/model\n",
        _build,
    ),
    Command(
        "describe",
        "write the configuration of a model",
        "Capture a model and write a configuration from which `corsac build` makes it again.",
        "example:\n  corsac describe torchvision.models:resnet18 --out resnet18.toml\n",
        _describe,
    ),
    Command(
        "save",
        "write a model to a file that runs without Python",
        "Capture a model and write it, with its weights, to a file that `corsac run` runs.",
        """\
examples:
  corsac save torchvision.models:resnet50 --input 1,3,224,224 --out resnet50.safetensors
  corsac bench resnet50.safetensors
""",
        _save,
    ),
    Command(
        "convert",
        "write an ONNX model to a file that runs without Python",
        """\
Read an ONNX model and write it, with its weights, to a file that `corsac run` runs. Inputs whose sizes the
model leaves open need --input.
""",
        """\
examples:
  corsac convert resnet50.onnx resnet50.safetensors --input 1,3,224,224
  corsac run resnet50.onnx --input image.npy --output scores.npy
""",
        _convert,
    ),
    Command(
        "quantize",
        "quantise a model, and write it to a file that runs without Python",
        """\
Quantise the layers of a model that are faster with 8-bit integers, print what was done and why other
layers stay float, and write the model to a file that `corsac run` runs. With --weights, weights are
integers, to save bytes.
""",
        """\
examples:
  corsac quantize torchvision.models:resnet50 --input 1,3,224,224 --calibration data.npz --out q.safetensors
  corsac quantize model.py:Net --input 8,16 --dynamic --report report.html --out q.safetensors
  corsac quantize model.py:Net --input 1,16 --weights int4:32 --out q.safetensors

exit codes: 0 done; 1 the file does not compute what the model does; 2 the request cannot be met
""",
        _quantize,
    ),
    Command(
        "bytecode",
        "list the instructions of a function",
        """\
List the instructions of a function as Python's dis module does, or the fields of its code object with
their meaning. The file is compiled and not run.
""",
        """\
examples:
  corsac bytecode model.py:Net.forward
  corsac bytecode json:loads --info
""",
        _bytecode,
    ),
    Command(
        "cache",
        "what is kept of compiled programs",
        "Say what the folder in CORSAC_CACHE_DIR has of compiled programs, or remove it.",
        "example (with CORSAC_CACHE_DIR set):\n  corsac cache --clear\n",
        _cache,
    ),
    Command(
        "completions",
        "print what completes commands and options in a shell",
        "Print a script that completes commands, options and files in bash, zsh or fish.",
        """\
examples:
  corsac completions bash > ~/.local/share/bash-completion/completions/corsac
  corsac completions fish > ~/.config/fish/completions/corsac.fish
""",
        _completions,
    ),
    Command(
        "run",
        "run a model file on arrays; corsac run --help",
        "Run a model file.",
        "example: corsac run resnet50.safetensors --input x.npy --output y.npy",
        _nothing,
    ),
    Command(
        "bench",
        "measure how long a model file takes; corsac bench --help",
        "Measure how long a model file takes.",
        "example: corsac bench resnet50.safetensors --threads 2",
        _nothing,
    ),
)
