"""The commands, and what their help says."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from corsac.cli import arguments


@dataclass(frozen=True)
class Command:
    """A subcommand; the function ``run`` of ``corsac.cli.NAME`` implements it."""

    name: str
    summary: str
    description: str
    examples: str
    add_arguments: Callable[[argparse.ArgumentParser], None]

    @property
    def is_native(self) -> bool:
        """Whether the native program implements it, and knows its options."""
        return self.add_arguments is arguments.nothing


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
        arguments.optimize,
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
        arguments.show,
    ),
    Command(
        "table",
        "print the nodes of a model as a table",
        "Capture a model and print its nodes in columns: opcode, name, target, args, kwargs.",
        "example:\n  corsac table torchvision.models:resnet18\n",
        arguments.table,
    ),
    Command(
        "code",
        "print the Python code of a model's graph",
        "Capture a model and print the Python code that its graph becomes.",
        "example:\n  corsac code torchvision.models:resnet18\n",
        arguments.code,
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
        arguments.diff,
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
        arguments.draw,
    ),
    Command(
        "summary",
        "print the modules of a model",
        """\
Print the tree of a model's modules, with what each gives on the given input, its parameters and its
multiplications, without running it.
""",
        "example:\n  corsac summary torchvision.models:resnet50 --input 1,3,224,224 --depth 2\n",
        arguments.summary,
    ),
    Command(
        "ops",
        "count operations, bytes and memory",
        """\
Count the arithmetic, the memory traffic and the peak memory of a model on the given input, by node
and by module, without running it.
""",
        "example:\n  corsac ops torchvision.models:resnet50 --input 1,3,224,224\n",
        arguments.ops,
    ),
    Command(
        "profile",
        "measure where the time goes",
        "Run a model node by node on the given input and print how long each node takes.",
        "example:\n  corsac profile torchvision.models:resnet50 --input 1,3,224,224\n",
        arguments.profile,
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
        arguments.split,
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
        arguments.plan,
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
        arguments.lower,
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
        arguments.minify,
    ),
    Command(
        "build",
        "build a model from a configuration",
        """\
Build a model from a configuration file, run it once where the file says the shapes of its inputs,
and print what it is made of.
""",
        "example:\n  corsac build model.toml --out out/model\n",
        arguments.build,
    ),
    Command(
        "describe",
        "write the configuration of a model",
        "Capture a model and write a configuration from which `corsac build` makes it again.",
        "example:\n  corsac describe torchvision.models:resnet18 --out resnet18.toml\n",
        arguments.describe,
    ),
    Command(
        "save",
        "write a model to a file that runs without Python",
        "Capture a model and write it, with its weights, to a file that `corsac run` runs.",
        """\
examples:
  corsac save torchvision.models:resnet50 --input 1,3,224,224 --out resnet50.safetensors
  corsac save torchvision.models:resnet50 --input batch,3,224,224 --dynamic batch=1..64 --out resnet50.safetensors
  corsac bench resnet50.safetensors --size batch=8
  corsac save ./gpt2 --generate --out gpt2.safetensors
  corsac generate gpt2.safetensors --prompt "The fox"
""",
        arguments.save,
    ),
    Command(
        "convert",
        "write an ONNX model or a program of torch.export to a file that runs without Python",
        """\
Read an ONNX model, or a program that torch.export.save wrote, and write it with its weights to a file that
`corsac run` runs. Nothing in these files is executed as code. Sizes that the model leaves open remain so, unless
--input gives numbers.
""",
        """\
examples:
  corsac convert resnet50.onnx resnet50.safetensors --input 1,3,224,224
  corsac convert bert.onnx bert.safetensors --dynamic batch=1..64 --dynamic sequence=1..512
  corsac convert bert.pt2 bert.safetensors
  corsac run resnet50.onnx --input image.npy --output scores.npy
""",
        arguments.convert,
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
        arguments.quantize,
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
        arguments.bytecode,
    ),
    Command(
        "cache",
        "what is kept of compiled programs",
        "Say what the folder in CORSAC_CACHE_DIR has of compiled programs, or remove it.",
        "example (with CORSAC_CACHE_DIR set):\n  corsac cache --clear\n",
        arguments.cache,
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
        arguments.completions,
    ),
    Command(
        "run",
        "run a model file on arrays; corsac run --help",
        "Run a model file.",
        "example: corsac run resnet50.safetensors --input x.npy --output y.npy",
        arguments.nothing,
    ),
    Command(
        "bench",
        "measure how long a model file takes; corsac bench --help",
        "Measure how long a model file takes.",
        "example: corsac bench resnet50.safetensors --threads 2",
        arguments.nothing,
    ),
    Command(
        "generate",
        "continue texts with a language model in a file; corsac generate --help",
        "Continue texts with a language model.",
        'example: corsac generate gpt2.safetensors --prompt "The fox"',
        arguments.nothing,
    ),
)

#: Suffixes of model files of other programs, which are converted.
CONVERTED = (".onnx", ".pt2")
#: Commands of the native program.
NATIVE = tuple(command.name for command in COMMANDS if command.is_native)
