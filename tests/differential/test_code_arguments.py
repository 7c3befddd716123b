"""Generated source: the text of every kind of argument, default and annotation."""

import collections
import enum
import math
import typing

import pytest
import torch

from kit import SUBJECT, differential, known_difference, load_source, needs_subject

Point = collections.namedtuple("Point", ["x", "y"])


class Typed(typing.NamedTuple):
    value: object
    number: int = 3


class Colour(enum.Enum):
    RED = 1
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1


class Odd:
    def __repr__(self):
        return "Odd(1)"


VALUES = {
    "none": None,
    "true": True,
    "int": -3,
    "huge": 2**200,
    "float": 0.1,
    "tiny": 5e-324,
    "big float": 1e300,
    "negative zero": -0.0,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "not a number": math.nan,
    "complex": 1 + 2j,
    "complex zero": complex(0.0, -0.0),
    "complex nan": complex(math.nan, math.inf),
    "imaginary": 2j,
    "text": "plain",
    "single quote": "it's",
    "double quote": 'say "x"',
    "both quotes": "'\"",
    "newline": "a\nb\tc\\d",
    "unicode": "größe ✓ 𝄞",
    "control": "\x00\x1b[31m",
    "braces": "{x} {} {{}} %s",
    "bytes": b"\x00'\"abc",
    "ellipsis": ...,
    "dtype": torch.float16,
    "device": torch.device("cpu"),
    "device with index": torch.device("cuda", 1),
    "layout": torch.strided,
    "memory format": torch.channels_last,
    "size": torch.Size([1, 2]),
    "empty size": torch.Size([]),
    "tuple": (1, 2),
    "one tuple": (1,),
    "empty tuple": (),
    "list": [1, [2, []]],
    "dict": {"a": 1, "b": {"c": [2]}},
    "dict with other keys": {1: 2, (1, 2): 3, None: 4, 1.5: 5},
    "slice": slice(1, None, -1),
    "nested slice": (slice(None), [slice(0, 1)]),
    "range": range(3),
    "range with step": range(1, 10, 3),
    "named tuple": Point(1, (2, 3)),
    "typed tuple": Typed([1]),
    "enum": Colour.RED,
    "enum in list": [Colour.GREEN, Level.LOW],
    "set": {1},
    "frozen set": frozenset({1}),
    "overload": torch.ops.aten.add.Tensor,
    "object": Odd(),
    "ordered dict": collections.OrderedDict(a=1),
    "default dict": collections.defaultdict(list, a=[1]),
    "bool subclass": Level.LOW,
    "qscheme": torch.per_tensor_affine,
    "not implemented": NotImplemented,
}


@pytest.mark.parametrize("label", VALUES)
@differential
def test_argument(fx, rec, label):
    value = VALUES[label]
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.add, (x, value), {"k": value})
    graph.output(y)
    rec("graph", graph)
    rec("argument", y.args[1])
    rec("type", type(y.args[1]).__name__)


@pytest.mark.parametrize("label", VALUES)
@differential
def test_default(fx, rec, label):
    graph = fx.Graph()
    graph.output(graph.placeholder("x", default_value=VALUES[label]))
    rec("graph", graph)


# Values that torch.fx writes in a dictionary as valid Python, but not always as the same value.
IN_A_DICTIONARY = {"complex zero", "complex nan", "imaginary", "named tuple", "typed tuple"}


@pytest.mark.parametrize("label", VALUES)
@known_difference(
    "graph",
    reason="numbers, enums, nested containers in a dict or a named tuple",
    when=lambda label: label in IN_A_DICTIONARY,
)
@differential
def test_output(fx, rec, label):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((VALUES[label], {"k": [x, VALUES[label]]}))
    rec("graph", graph)


@pytest.mark.parametrize("label", VALUES)
@differential
def test_the_value_survives_compilation(fx, rec, label):
    graph = fx.Graph()
    graph.output(VALUES[label])
    rec.call("value", lambda: fx.GraphModule({}, graph)())


@needs_subject
@pytest.mark.parametrize("value", [int, len, torch.ops.aten.add, torch.nn.Linear, math.sqrt])
def test_callables_as_arguments_are_written_as_python(value):
    """torch.fx writes their representation, which is not valid Python."""
    graph = SUBJECT.fx.Graph()
    graph.output((value, [value], {"k": value}, graph.placeholder("x", default_value=value)))
    assert SUBJECT.fx.GraphModule({}, graph)() == (value, [value], {"k": value}, value)


@differential
def test_tensors_as_arguments(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.add, (x, torch.ones(2, 3))))
    rec("source", graph.python_code("self").src)
    rec("argument", next(n for n in graph.nodes if n.name == "add").args[1])


@differential
def test_nodes_everywhere_in_an_argument(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    args = ([x, (y, {"k": [x, slice(y, None, x)]})], slice(x, y), {"a": {"b": x}}, Point(x, [y]))
    z = graph.call_function(torch.add, args, {"key": args, "other": (x,)})
    graph.output([z, {"z": (z, x)}])
    rec("graph", graph)


@differential
def test_keywords_that_are_not_identifiers(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(dict, (), {"plain": x}))
    rec("plain", graph)


def f_local():
    class Local:
        pass

    return Local


ANNOTATIONS = {
    "tensor": torch.Tensor,
    "builtin": int,
    "none type": type(None),
    "any": typing.Any,
    "optional": typing.Optional[torch.Tensor],
    "union": typing.Union[int, str],
    "list": list[int],
    "typing list": typing.List[torch.Tensor],
    "nested": dict[str, list[tuple[int, ...]]],
    "empty tuple": tuple[()],
    "typing empty tuple": typing.Tuple[()],
    "callable": typing.Callable[[int], str],
    "text": "ForwardReference",
    "literal": typing.Literal["a", 1],
    "class": Point,
    "type variable": typing.TypeVar("T"),
    "pep 604": int | None,
    "pep 604 generic": list[int] | dict[str, int],
    "bare list": list,
    "bare typing list": typing.List,
    "device": torch.device,
    "dtype": torch.dtype,
    "module": torch.nn.Linear,
    "local class": f_local(),
}


@pytest.mark.parametrize("label", ANNOTATIONS)
@differential
def test_annotation(fx, rec, label):
    annotation = ANNOTATIONS[label]
    graph = fx.Graph()
    x = graph.placeholder("x", annotation)
    y = graph.call_function(torch.relu, (x,), type_expr=annotation)
    graph.output(y, annotation)
    rec("graph", graph)


@differential
def test_enums_and_named_tuples_of_other_modules(fx, rec):
    module = load_source(
        "import enum, collections\n"
        "class Shade(enum.Enum):\n    DARK = 1\n"
        "Pair = collections.namedtuple('Pair', 'a b')\n"
        "class Outer:\n    class Inner(enum.Enum):\n        ONE = 1\n",
        fx,
    )
    graph = fx.Graph()
    x = graph.placeholder("x")
    arguments = (module.Shade.DARK, module.Pair(x, 2), module.Outer.Inner.ONE, Colour.RED)
    graph.output(graph.call_function(torch.add, arguments))
    rec("graph", graph)


@differential
def test_wide_and_deep_arguments(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    deep = x
    for _ in range(40):
        deep = [deep]
    wide = [x] * 500 + list(range(500))
    y = graph.call_function(torch.cat, (wide, deep))
    graph.output(y)
    rec("graph", graph)
