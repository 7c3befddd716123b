"""The arguments of each command."""

from __future__ import annotations

import argparse

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


def optimize(parser: argparse.ArgumentParser) -> None:
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


def show(parser: argparse.ArgumentParser) -> None:
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


def table(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    _json(parser)


def code(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="with the user's source lines as comments"
    )
    _json(parser)


def diff(parser: argparse.ArgumentParser) -> None:
    _model(parser, "before", "after")
    _input(parser)
    _json(parser)


def draw(parser: argparse.ArgumentParser) -> None:
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


def ops(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    _json(parser)


def summary(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--depth",
        type=not_negative,
        metavar="N",
        help="how deep to go into modules inside (all of them)",
    )
    _json(parser)


def profile(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--repeat", type=positive, default=10, metavar="N", help="runs of the model (10)"
    )
    _json(parser)


def split(parser: argparse.ArgumentParser) -> None:
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


def plan(parser: argparse.ArgumentParser) -> None:
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


def lower(parser: argparse.ArgumentParser) -> None:
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


def _dynamic(parser: argparse.ArgumentParser, named: str) -> None:
    parser.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="NAME=N..M",
        help=f"a size that may differ between calls, {named}, with its range: --input batch,3,224,224 "
        "--dynamic batch=1..64; without a range the one that the model takes is found; once per name",
    )


def save(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    _dynamic(parser, "named in --input")
    parser.add_argument(
        "--generate",
        action="store_true",
        help="the model is a causal language model of transformers, or a folder with one: write a file from which "
        "`corsac generate` continues texts",
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="with --generate: most texts that are continued at once (64)",
    )
    parser.add_argument(
        "--length",
        type=int,
        metavar="N",
        help="with --generate: most tokens of a text (as many as the model says, or 2048)",
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the file: *.safetensors")
    _json(parser)


def convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model: *.onnx or *.pt2")
    parser.add_argument("out", metavar="OUT", help="the file: *.safetensors")
    _input(parser)
    _dynamic(parser, "named in --input or in the model")
    _json(parser)


def quantize(parser: argparse.ArgumentParser) -> None:
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


def minify(parser: argparse.ArgumentParser) -> None:
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


def nothing(parser: argparse.ArgumentParser) -> None:
    """For commands on model files, which ``corsac.cli.main`` passes on to the native program."""


def cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove all entries")
    _json(parser)


def bytecode(parser: argparse.ArgumentParser) -> None:
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


def completions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="whose script to print")


def build(parser: argparse.ArgumentParser) -> None:
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


def describe(parser: argparse.ArgumentParser) -> None:
    _model(parser)
    _input(parser)
    parser.add_argument(
        "--format", choices=("graph", "toml", "json"), help="the notation (graph, or as --out says)"
    )
    parser.add_argument("--out", metavar="FILE", help="write a file *.graph, *.toml or *.json")
    _json(parser)
