"""The command line."""

from __future__ import annotations

import argparse

from corsac import __version__

OPTIMIZE = """\
Capture a PyTorch model as a graph, remove what inference does not need (dropout, batch norms that
can be folded into the convolution before them, repeated and unused computations), check the result
against the original on the given input, and print what each pass did and what was gained.
"""

EXAMPLES = """\
examples:
  corsac optimize torchvision.models:resnet50 --input 1,3,224,224 --out out/resnet50
  corsac optimize model.py:Net --kwargs hidden=64 --kwargs name=small --input 8,16
  corsac optimize model.py:Net --kwargs '{"hidden": 64}' --input 1,16:int64 --input 1,16:bool

exit codes: 0 done; 1 the result differs from the original; 2 the request cannot be met
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    program = argparse.ArgumentParser(
        prog="corsac",
        description="torch.fx in Rust: capture, transform and run PyTorch programs.",
    )
    program.add_argument("--version", action="version", version=f"corsac {__version__}")
    commands = program.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    optimize = commands.add_parser(
        "optimize",
        help="capture a model, run the passes, check the result and measure it",
        description=OPTIMIZE,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    optimize.add_argument(
        "model",
        metavar="MODEL",
        help="module:callable or file.py:callable; what it returns, or is, must be an nn.Module",
    )
    optimize.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SHAPE[:DTYPE]",
        help="shape of a positional input, such as 1,3,224,224 or 1,16:int64; once per input",
    )
    optimize.add_argument(
        "--kwargs",
        action="append",
        default=[],
        metavar="JSON|KEY=VALUE",
        help="arguments for the callable: a JSON object, or key=value (may be repeated)",
    )
    optimize.add_argument(
        "--out",
        metavar="DIR",
        help="write the result: an importable module with its weights, and graph.txt",
    )
    optimize.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed for the model's weights and the inputs (0)",
    )
    optimize.add_argument(
        "--repeat",
        type=positive,
        metavar="N",
        help="timed calls of the model before and after (20, fewer where they take over 20 s)",
    )
    optimize.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        metavar="X",
        help="largest difference accepted, as a part of the largest output (1e-4)",
    )
    optimize.add_argument(
        "--verify",
        action="store_true",
        help="run the model before and after every pass, and name the first one, and the change "
        "that it made, after which the result differs",
    )
    optimize.add_argument(
        "--randomize-stats",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="give batch norms random weights and measured statistics; by default those of a "
        "model whose batch norms are all untrained, since folding them would prove nothing",
    )
    optimize.add_argument(
        "--traceback",
        action="store_true",
        help="on an error, show where it comes from",
    )
    return program


def positive(text: str) -> int:
    """An integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number
