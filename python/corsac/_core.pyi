"""The native half of corsac: handles on the Rust graph, and what works on them.

Written by scripts/generate_stub.py from the built module.
"""

from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any, ClassVar, final

from typing_extensions import disjoint_base

import torch

__version__: str

@disjoint_base
class Attribute:
    """An attribute of a proxy. Calling it records a call of a method; any other use records that the
    attribute is read.
    """
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Attribute: ...
    @property
    def attr(self) -> Any:
        """The name of the attribute."""
        ...
    @attr.setter
    def attr(self, value: Any) -> None: ...
    @property
    def root(self) -> Any:
        """The proxy that this is an attribute of."""
        ...
    @root.setter
    def root(self, value: Any) -> None: ...

@final
class Budget:
    """How many changes passes may make, one after the other.

    Each pass asks for one unit before each change that it could make by itself, in a fixed order,
    and leaves the graph as it is where it gets none; its report then says so. Running with 0, 1, 2,
    ... units gives graphs of which two neighbours differ in one change, so that a wrong one is
    found by bisection. Without a limit any number is granted, and counted.
    """
    def __new__(cls, limit: Any = None) -> Budget: ...
    def __repr__(self, /) -> str: ...
    @property
    def left(self) -> Any:
        """How many more may be made; None where it is any number."""
        ...
    @left.setter
    def left(self, value: Any) -> None: ...
    @property
    def limit(self) -> Any:
        """How many changes may be made in all; None where it is any number."""
        ...
    @limit.setter
    def limit(self, value: Any) -> None: ...
    @property
    def spent(self) -> Any:
        """How many changes were made."""
        ...
    @spent.setter
    def spent(self, value: Any) -> None: ...
    def take(self) -> Any:
        """Ask for one change; answers whether it may be made."""
        ...

class BytecodeError(ValueError):
    """Bytes that are no code, instructions that cannot be written, or code that the interpreter cannot run.

    Has the attribute `offset`: where, in bytes, or None.
    """

@final
class CacheFolder:
    """A folder in which what was found out about compiled programs is kept for other processes.

    Entries are found by facts: names and texts that are all that they depend on, besides the version of
    corsac and the processor, which are always looked at. `limit` is a size such as `"64M"`, its default.
    Raises `OSError` if the folder cannot be made, belongs to another user or can be written to by others,
    and `ValueError` for a limit that is no size.
    """
    def __new__(cls, path: Any, limit: Any = None) -> CacheFolder: ...
    def clear(self) -> int:
        """Removes all entries; answers how many."""
        ...
    def contents(self) -> tuple[int, int]:
        """How many entries there are, and what they take on the disk, in bytes."""
        ...
    def get(self, facts: Any) -> tuple[str, dict[str, float]] | None:
        """The steps of a program, and the seconds that ways to run it took; None if nothing is known of it."""
        ...
    @property
    def limit_bytes(self) -> int:
        """How many bytes it may take."""
        ...
    @limit_bytes.setter
    def limit_bytes(self, value: int) -> None: ...
    def put(self, facts: Any, program: Any, seconds: Any) -> None:
        """Keeps these; raises `OSError` if they cannot be written."""
        ...

@final
class CodeDraft:
    """The parts of the code of a graph, for a code generator that overrides some of them."""
    @property
    def free_vars(self) -> Any:
        """The inputs, as they stand between the parentheses of a definition."""
        ...
    @free_vars.setter
    def free_vars(self, value: Any) -> None: ...
    @property
    def globals(self) -> Any:
        """The globals of the code."""
        ...
    @globals.setter
    def globals(self, value: Any) -> None: ...
    @property
    def outputs(self) -> Any:
        """Pieces left out, each with the output node that it is for."""
        ...
    @outputs.setter
    def outputs(self, value: Any) -> None: ...
    @property
    def pieces(self) -> Any:
        """The body, in the pieces that transformers of bodies see."""
        ...
    @pieces.setter
    def pieces(self, value: Any) -> None: ...
    @property
    def renamed(self) -> Any:
        """Nodes that are not called by their names."""
        ...
    @renamed.setter
    def renamed(self, value: Any) -> None: ...
    @property
    def return_annotation(self) -> Any:
        """The type of the result, with its arrow."""
        ...
    @return_annotation.setter
    def return_annotation(self, value: Any) -> None: ...
    @property
    def texts(self) -> Any:
        """Objects that arguments hold, with how they are written."""
        ...
    @texts.setter
    def texts(self, value: Any) -> None: ...
    @property
    def wraps(self) -> Any:
        """Statements before the function."""
        ...
    @wraps.setter
    def wraps(self, value: Any) -> None: ...

class CompileError(RuntimeError):
    """A graph cannot be compiled: the node, and why."""

class ConfigError(ValueError):
    """A configuration is none, or a model cannot be described by one.

    Has the attributes `line` and `column`, counted from 1; both are None where a model cannot be described.
    """

@final
class Dim:
    """A size that depends on symbols: `batch`, `2*seq + 1`. Equal expressions are equal.

    A symbol stands for any number from 2.
    """
    def __add__(self, value: Any, /) -> Any: ...
    def __eq__(self, value: Any, /) -> bool: ...
    def __floordiv__(self, value: Any, /) -> Any: ...
    def __ge__(self, value: Any, /) -> Any: ...
    def __gt__(self, value: Any, /) -> Any: ...
    def __hash__(self, /) -> int: ...
    def __le__(self, value: Any, /) -> Any: ...
    def __lt__(self, value: Any, /) -> Any: ...
    def __mul__(self, value: Any, /) -> Any: ...
    def __ne__(self, value: Any, /) -> bool: ...
    def __new__(cls, name: str) -> Dim: ...
    def __radd__(self, value: Any, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    def __rfloordiv__(self, value: Any, /) -> Any: ...
    def __rmul__(self, value: Any, /) -> Any: ...
    def __rsub__(self, value: Any, /) -> Any: ...
    def __str__(self, /) -> str: ...
    def __sub__(self, value: Any, /) -> Any: ...
    def evaluate(self, sizes: Any) -> Any:
        """Its value where symbols have the values in `sizes`."""
        ...

@disjoint_base
class Graph:
    """A program: nodes in order. The Python class `corsac.fx.Graph` derives from this one and adds
    what concerns code generation.
    """
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Graph: ...
    def __str__(self, /) -> str: ...
    def _check_targets(self, module: torch.nn.Module) -> Any:
        """Checks that the attributes and submodules that nodes name are in `module`."""
        ...
    def _fill_from(self, g: Graph) -> None:
        """Fills this empty graph with the nodes of `g`, output node included."""
        ...
    def _last_uses(self) -> Any:
        """For each node that is the last to use some values, the nodes with these values."""
        ...
    @property
    def _len(self) -> int:
        """How many nodes there are."""
        ...
    @_len.setter
    def _len(self, value: int) -> None: ...
    def _lint(self) -> Any:
        """Checks that the graph is a program; that its attributes and submodules exist is for
        `_check_targets`.
        """
        ...
    def _parse(self, text: str, allow: Any = None) -> Any:
        """Fills this empty graph with what `text` says. What it names must be allowed by `allow`, a
        predicate or a collection of names.
        """
        ...
    @property
    def _root(self) -> Node:
        """The sentinel that closes the list of nodes."""
        ...
    @_root.setter
    def _root(self, value: Node) -> None: ...
    def _state_names(self) -> Any:
        """The qualified names of the attributes and modules that the graph uses, each once, in the
        order of their first use.
        """
        ...
    def _table(self) -> Any:
        """The table that `print_tabular` prints."""
        ...
    def call_function(self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None, type_expr: Any = None, name: str | None = None) -> Node:
        """A call of the function `the_function`."""
        ...
    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of the method called `method_name` on `args[0]`."""
        ...
    def canonical_hash(self) -> Any:
        """A hash, as 32 hexadecimal digits, that is equal for graphs that compute the same in the
        same way: it does not depend on the names of values nor on the order of independent nodes.
        It does on opcodes, targets, arguments, the names and order of inputs, and on the order of
        writes, random draws and other effects. Weights are not in the graph: their names count.
        Constants that are tensors or objects count by identity, so that hashes of graphs with such
        constants mean something in one process only.
        """
        ...
    def copy_with_values(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool) -> Any:
        """[`PyGraph::graph_copy`] where some node of `g` stands for a value that is no node."""
        ...
    def create_node(self, op: str, target: Any, args: Any = None, kwargs: Any = None, name: str | None = None, type_expr: Any = None) -> Node:
        """Creates a node at the insertion point.

        `op` is one of the six opcodes, `target` a function for call_function and otherwise a
        string, `args` a tuple, `kwargs` a dictionary. `name` is a wish for the name of the value,
        `type_expr` a type annotation.
        """
        ...
    def diff(self, other: Any) -> Any:
        """What has to change in this graph for it to become `other`.

        Nodes are matched by what they compute before they are matched by name, so that a renamed
        node does not make the nodes that use it differ. Print the answer to see it.
        """
        ...
    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes whose value nobody uses, unless they do something that can be observed:
        write to an input, an attribute or a value that is used later (or that shares storage with
        it), draw random numbers, have a registered side effect, or call something of which nothing
        is known. Answers whether the graph has changed; graph modules that it names as attributes
        are cleaned too.

        With `is_impure_node`, that function alone says which unused nodes stay, as in torch.fx.
        """
        ...
    def erase_node(self, to_erase: Node) -> None:
        """Takes a node without users out of the graph."""
        ...
    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes with this opcode, and this target where one is given, in time proportional to
        the answer. With `sort`, in graph order.
        """
        ...
    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies all nodes of `g` up to its output node to the insertion point. `val_map` says what
        some nodes of `g` are already, and afterwards what all of them are. Answers what the
        output of `g` is in this graph; with `return_output_node`, also the output node of `g`.
        """
        ...
    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """Nodes created from now on come right after `n`; after everything for None. As a context
        manager, until the end of the `with` block.
        """
        ...
    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """Nodes created from now on come before `n`; before everything for None. As a context
        manager, until the end of the `with` block.
        """
        ...
    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] | None = None) -> Node:
        """Copies a node of another graph (or this one) to the insertion point.
        `arg_transform(node)` says what becomes of the nodes in its arguments.
        """
        ...
    @property
    def nodes(self) -> Nodes:
        """The nodes in order: a live view that can be iterated both ways while the graph changes."""
        ...
    @nodes.setter
    def nodes(self, value: Nodes) -> None: ...
    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The result of the program."""
        ...
    def output_node(self) -> Node:
        """The output node, which is the last one."""
        ...
    @property
    def owning_module(self) -> Any:
        """The module that runs this graph, if one does."""
        ...
    @owning_module.setter
    def owning_module(self, value: Any) -> None: ...
    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input of the program, called `name`. `*name` and `**name` take what is left over."""
        ...
    def portable_hash(self) -> str | None:
        """The hash of `canonical_hash`, which every process gives an equal graph; None if there are
        constants that count by identity.
        """
        ...
    def to_lossless(self) -> Any:
        """The graph as text that `Graph.parse` reads back without loss.

        Functions, classes and types are named; they are found again under those names when the
        text is read. A value that no name leads to, such as a tensor, is written without one, and
        reading such a text is an error. Metadata and attributes are left out.
        """
        ...
    def topological_sort(self) -> Any:
        """Orders the nodes so that each comes after all it uses; answers how many had to move.

        Nodes that come too early move to just behind what they wait for, and all others keep their
        order. Effects that no argument expresses, such as changes in place, are not looked at.

        Raises `RuntimeError` if nodes use each other in a cycle; the graph is then as it was.
        """
        ...

@final
class GraphDiff:
    """What changed between two graphs. Prints like a unified diff of the two, without the numbers of
    users; is false if nothing changed.
    """
    def __bool__(self, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...
    @property
    def added(self) -> Any:
        """Nodes of the second graph that are not in the first."""
        ...
    @added.setter
    def added(self, value: Any) -> None: ...
    @property
    def changed(self) -> Any:
        """Nodes in both that differ: the node before, the node after, and which of "name", "target",
        "args", "kwargs" and "type" differ.
        """
        ...
    @changed.setter
    def changed(self, value: Any) -> None: ...
    @property
    def moved(self) -> Any:
        """Nodes of the second graph that stand elsewhere than in the first."""
        ...
    @moved.setter
    def moved(self, value: Any) -> None: ...
    @property
    def removed(self) -> Any:
        """Nodes of the first graph that are not in the second."""
        ...
    @removed.setter
    def removed(self, value: Any) -> None: ...

class GraphTextError(ValueError):
    """A text that should be a graph is none, or names something that is not there.

    Has the attributes `line` and `column`, counted from 1, `expected` and `found`; all are None where a name was not found.
    """

@final
class Guards:
    """What a program read when it was captured. A call may use the program if all of it is as it was."""
    def __len__(self, /) -> int: ...
    def counters(self) -> Any:
        """Places of numbers that the program replaces: dictionaries with keys, and cells."""
        ...
    def failure(self, program: Any) -> Any:
        """The first guard that fails in words: the place, what was there, what is there now, and the file and the line
        that has read it first; None if all hold.
        """
        ...
    def find(self, arguments: Any) -> Any:
        """Finds the tensors and the objects in arguments and in state: in the places, and with the numbers, of the call
        that was recorded. Gives None if something else is there.

        `arguments` are those that are neither tensors nor constants.
        """
        ...
    def hold(self) -> Any:
        """Whether everything that the program read is as it was."""
        ...
    def list(self, program: Any) -> Any:
        """Each guard in words: the family, the place, what it has to be, and the file and the line that has read it
        first, if the program has. `program` is where paths begin.
        """
        ...
    def reason(self) -> Any:
        """What has changed, for people; None if nothing has."""
        ...

HOST: Any

@final
class InsertPoint:
    """Puts the insertion point of a graph back where it was, at the end of a `with` block."""
    def __enter__(self) -> None: ...
    def __exit__(self, _class: Any, _value: Any, _traceback: Any) -> None: ...

@final
class Instructions:
    """Instructions of a code object with labels in place of offsets."""
    def assemble(self, first_line: Any) -> list[bytes]:
        """Write the code: ``co_code``, ``co_exceptiontable``, ``co_linetable``."""
        ...
    def blocks(self) -> list[tuple[int, int, list[int], list[int]]]:
        """The basic blocks: first instruction, behind the last one, blocks that may run next, blocks that
        handle its exceptions.
        """
        ...
    @staticmethod
    def decode(minor: Any, code: Any, exception_table: Any, line_table: Any, first_line: Any) -> Instructions:
        """Read the bytes of a code object.

        Args:
            minor: the minor version of CPython, 11 to 14.
            code, exception_table, line_table, first_line: ``co_code``, ``co_exceptiontable``,
                ``co_linetable``, ``co_firstlineno``.
        """
        ...
    def exception_entries(self) -> list[tuple[int, int, int, int, bool]]:
        """The exception table in offsets: start, end, target, depth, whether the place is pushed."""
        ...
    @staticmethod
    def from_parts(minor: Any, instructions: Any, labels: Any, handlers: Any) -> Instructions:
        """Instructions from their parts.

        Args:
            minor: the minor version of CPython, 11 to 14.
            instructions: opcode, argument or None, number of a label or None, place or None.
            labels: the index of the instruction that each label is before.
            handlers: labels of start, end and target, depth, whether the place is pushed.
        """
        ...
    def oriented(self) -> Instructions:
        """The same instructions with jumps in the direction of their labels."""
        ...
    def parts(self) -> tuple[list[tuple[str, int | None, int | None, tuple[int | None, ...]]], list[int], list[tuple[int, int, int, int, bool]]]:
        """The parts that `from_parts` takes, without the version."""
        ...
    def rows(self, consts: Any, names: Any, locals: Any) -> list[tuple[Any, ...]]:
        """The lines of ``text``: opcode, number, argument, what it stands for, offset, offset of its first
        ``EXTENDED_ARG``, target or None, whether it starts a line, label or None, place.
        """
        ...
    def stack_depths(self, flags: Any) -> list[int | None]:
        """The height of the stack before each instruction; None for those that are never reached."""
        ...
    def stack_size(self, flags: Any) -> int:
        """``co_stacksize``, as the compiler computes it; ``flags`` is ``co_flags``."""
        ...
    def text(self, consts: Any, names: Any, locals: Any) -> str:
        """The text that ``dis.dis`` prints for the code."""
        ...
    def verify(self, flags: Any, parameters: Any, consts: Any, names: Any, locals: Any, free: Any) -> int:
        """Check that the interpreter can run the code without crashing; returns ``co_stacksize``.

        Args:
            flags: ``co_flags``.
            parameters: how many local variables are parameters.
            consts, names: ``co_consts`` and ``co_names``.
            locals: the local variables, cells and free variables, by slot.
            free: how many of them, the last ones, are free variables.
        """
        ...

@final
class LineMap:
    """The node of each line of a generated function, made a dictionary when somebody asks."""
    def __reduce__(self) -> Any: ...
    def to_dict(self) -> Any:
        """From line (the `def` line being 0) to the index of the node, None before the first."""
        ...

@final
class Matches:
    """The places in a graph where a pattern was found."""
    def __len__(self, /) -> int: ...
    def nodes(self, index: int) -> Any:
        """What match number `index` maps nodes of the pattern to, what the placeholders of the
        pattern stand for, and what it returns.
        """
        ...
    def replace(self, replacement: Any, anchor: Any, result: Any, list_added: Any) -> Any:
        """Puts `replacement` in the place of all matches. Answers for each
        `result(anchor, nodes_map)`, or with `list_added` `result(anchor, nodes_map, added)`, where
        `nodes_map` says what it mapped nodes of the pattern to. No hooks are called.
        """
        ...

@final
class ModelFile:
    """A model file, read and checked."""
    def __new__(cls, path: Any) -> ModelFile: ...
    @property
    def inputs(self) -> Any:
        """What it takes: names, element types, sizes."""
        ...
    @inputs.setter
    def inputs(self, value: Any) -> None: ...
    @property
    def outputs(self) -> Any:
        """What it gives: places in the result, element types, sizes."""
        ...
    @outputs.setter
    def outputs(self, value: Any) -> None: ...
    def program(self) -> Any:
        """The program that it is, with its weights packed."""
        ...
    @property
    def text(self) -> Any:
        """The graph, in the lossless form."""
        ...
    @text.setter
    def text(self, value: Any) -> None: ...
    def weight_bytes(self, number: Any) -> Any:
        """The bytes of the weight with this number, in little-endian order, row by row."""
        ...
    @property
    def weights(self) -> Any:
        """Its weights: names, element types, sizes."""
        ...
    @weights.setter
    def weights(self, value: Any) -> None: ...

class ModelFileError(ValueError):
    """A file is no model file, is damaged, or asks for more than it may."""

@final
class Namespace:
    """Hands out names of which no two are the same."""
    def __new__(cls) -> Namespace: ...
    def create(self, candidate: str, may_shadow: bool) -> str:
        """A fresh name after `candidate`, which may be that of a builtin if `may_shadow`."""
        ...
    def mark_used(self, name: str) -> None:
        """Takes `name` as it is."""
        ...
    def used(self) -> Any:
        """All names taken."""
        ...

@final
class NativeModel:
    """A graph with what is known of its modules and weights. The programs that are made of it share
    packed weights, and the memory for values.

    It is for the weights as they are when it is made, and for a graph that does not change.
    """
    def __new__(cls, graph: Graph, *, strict: Any = False, precision: Any = "f32", after: Any = None) -> NativeModel: ...
    def compile(self, inputs: Any, *, writes: Any = False) -> Any:
        """A program for tensors like `inputs`; numbers among them are compiled in. Raises what
        `compile_graph` does. With `writes` the program may write to its inputs: calls raise `ValueError` where
        these share memory with others or with a weight, or do not lie row by row.
        """
        ...

@final
class NativeProgram:
    """A graph as a native program, for inputs of fixed shapes."""
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __str__(self, /) -> str: ...
    @property
    def arena_bytes(self) -> Any:
        """How many bytes the values of a run take, weights and inputs aside."""
        ...
    @arena_bytes.setter
    def arena_bytes(self, value: Any) -> None: ...
    def output(self) -> Any:
        """What the graph returns, with the numbers of results in the places of tensors."""
        ...
    @property
    def output_dtypes(self) -> Any:
        """The element types of the results, by PyTorch's names for them."""
        ...
    @output_dtypes.setter
    def output_dtypes(self, value: Any) -> None: ...
    @property
    def output_shapes(self) -> Any:
        """The shapes of the results, in order."""
        ...
    @output_shapes.setter
    def output_shapes(self, value: Any) -> None: ...
    @property
    def precision(self) -> Any:
        """With what convolutions and linear layers multiply: `"bf16"` where that is wanted and the
        processor can.
        """
        ...
    @precision.setter
    def precision(self, value: Any) -> None: ...
    def profile(self, *arguments: Any) -> Any:
        """Like a call; answers what it answers, and how many seconds each step took."""
        ...
    def run(self, inputs: Any, outputs: Any) -> Any:
        """Runs the program on arrays in row-major order, and writes the results to others: float32,
        int64, and bytes for truth values. The interpreter is free meanwhile. As many threads take part
        as `CORSAC_NUM_THREADS` says, or as there are cores: PyTorch may be absent.
        """
        ...
    @property
    def step_count(self) -> Any:
        """How many steps a run takes."""
        ...
    @step_count.setter
    def step_count(self, value: Any) -> None: ...
    @property
    def steps(self) -> Any:
        """The steps, a line of text each."""
        ...
    @steps.setter
    def steps(self, value: Any) -> None: ...
    @property
    def writes(self) -> Any:
        """Whether it writes to inputs."""
        ...
    @writes.setter
    def writes(self, value: Any) -> None: ...

@final
class Node:
    """One step of a program: what it does (`op`), what it calls or names (`target`), and what with
    (`args`, `kwargs`).

    A node is made by the methods of `Graph` and is the same object (`is`) for as long as it is in
    its graph. `meta` is a dictionary for whoever wants to note something about the node, and
    other attributes may be set freely.

    The opcodes are `placeholder` (an input; `args` is empty or holds its default value), `get_attr`
    (a parameter or another attribute, by qualified name), `call_function`, `call_method` (on
    `args[0]`), `call_module` and `output` (returns `args[0]`).
    """
    def __delattr__(self, name: str, /) -> None: ...
    def __eq__(self, value: Any, /) -> bool: ...
    def __ge__(self, value: Any, /) -> Any: ...
    def __gt__(self, value: Any, /) -> Any: ...
    def __hash__(self, /) -> int: ...
    def __le__(self, value: Any, /) -> Any: ...
    def __lt__(self, value: Any, /) -> Any: ...
    def __ne__(self, value: Any, /) -> bool: ...
    def __new__(cls, graph: Graph, name: str, op: str, target: Any, args: Any, kwargs: Any, return_type: Any = None) -> Node: ...
    def __repr__(self, /) -> str: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    @property
    def _args(self) -> tuple[Any, ...]: ...
    @_args.setter
    def _args(self, value: tuple[Any, ...]) -> None: ...
    @property
    def _erased(self) -> bool:
        """Whether the node was taken out of its graph."""
        ...
    @_erased.setter
    def _erased(self, value: bool) -> None: ...
    @property
    def _input_nodes(self) -> dict[Node, None]: ...
    @_input_nodes.setter
    def _input_nodes(self, value: dict[Node, None]) -> None: ...
    @property
    def _kwargs(self) -> dict[str, Any]: ...
    @_kwargs.setter
    def _kwargs(self, value: dict[str, Any]) -> None: ...
    @property
    def _next(self) -> Node: ...
    @_next.setter
    def _next(self, value: Node) -> None: ...
    def _prepend(self, x: Node) -> None: ...
    @staticmethod
    def _pretty_print_target(target: Any) -> Any:
        """What the printed graph shows for a target: a name as it is, a callable by where it is found."""
        ...
    @property
    def _prev(self) -> Node: ...
    @_prev.setter
    def _prev(self, value: Node) -> None: ...
    def _rename(self, candidate: str) -> Any:
        """Gives the value the first free name after `candidate`."""
        ...
    def _replace_input_with(self, old_input: Node, new_input: Node) -> Any: ...
    @property
    def _repr_fn(self) -> Any:
        """What people have set to print the node with, or None."""
        ...
    @_repr_fn.setter
    def _repr_fn(self, value: Any) -> None: ...
    def _repr_html_(self) -> Any:
        """What is known of the node, as a notebook shows it."""
        ...
    @property
    def _sort_key(self) -> tuple[int, ...]:
        """A key that grows along the graph."""
        ...
    @_sort_key.setter
    def _sort_key(self, value: tuple[int, ...]) -> None: ...
    def _update_args_kwargs(self, args: Any, kwargs: Any) -> Any:
        """Replaces both kinds of arguments at once."""
        ...
    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one uses, each once, in the order of the arguments."""
        ...
    @all_input_nodes.setter
    def all_input_nodes(self, value: list[Node]) -> None: ...
    def append(self, x: Node) -> None:
        """Moves `x`, a node of the same graph, to just after this node."""
        ...
    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments. Assign a tuple to change them."""
        ...
    @args.setter
    def args(self, value: tuple[Any, ...]) -> None: ...
    def format_node(self, placeholder_names: Any = None, maybe_return_typename: Any = None, *, include_tensor_metadata: Any = False) -> str | None:
        """The line that stands for the node in the printed graph.

        With a list that is not empty as `placeholder_names`, the description of a placeholder is
        appended to it instead, and None returned. `maybe_return_typename[0]` becomes the type of
        an output. `include_tensor_metadata` shows type, shape, strides and device of the tensor in
        `meta`.
        """
        ...
    @property
    def graph(self) -> Graph:
        """The graph that the node is in."""
        ...
    @graph.setter
    def graph(self, value: Graph) -> None: ...
    def insert_arg(self, idx: int, arg: Any) -> None:
        """Inserts `arg` before `args[idx]`."""
        ...
    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether torch.fx's dead-code elimination would keep this node if nothing used it: inputs and
        outputs, modules marked `_is_impure`, functions with side effects, and random functions
        unless `impure_random` says that they may go.
        """
        ...
    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments. Assign a dictionary to change them."""
        ...
    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None: ...
    @property
    def meta(self) -> dict[str, Any]:
        """A dictionary for whoever wants to note something about the node. Copied with the node."""
        ...
    @meta.setter
    def meta(self, value: dict[str, Any]) -> None: ...
    @property
    def name(self) -> str:
        """The name of the value, unique in its graph."""
        ...
    @name.setter
    def name(self, value: str) -> None: ...
    @property
    def next(self) -> Node:
        """The node after this one; after the last comes the graph's root."""
        ...
    @next.setter
    def next(self, value: Node) -> None: ...
    def normalized_arguments(self, root: Any, arg_types: tuple[Any, ...] | None = None, kwarg_types: dict[str, Any] | None = None, normalize_to_only_use_kwargs: bool = False) -> Any:
        """The arguments matched to the parameters of the function or module called, with default
        values filled in: a pair of args and kwargs, or None where they cannot be told.

        `root` is the module that call_module targets are looked up in; types tell overloads apart.
        """
        ...
    @property
    def op(self) -> str:
        """The opcode."""
        ...
    @op.setter
    def op(self, value: str) -> None: ...
    def prepend(self, x: Node) -> None:
        """Moves `x`, a node of the same graph, to just before this node."""
        ...
    @property
    def prev(self) -> Node:
        """The node before this one; before the first comes the graph's root."""
        ...
    @prev.setter
    def prev(self, value: Node) -> None: ...
    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *, propagate_meta: bool = False) -> list[Node]:
        """Makes all users of this node use `replace_with` instead, and answers which they are.

        `delete_user_cb(user)` may say for each user whether it shall change. With
        `propagate_meta`, the replacement, which must have none yet, gets this node's meta.
        """
        ...
    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Makes this node use `new_input` wherever it uses `old_input`."""
        ...
    @property
    def source(self) -> Any:
        """Where in the user's program the node was made: file, line, function and module path, or
        None where no program made it.
        """
        ...
    @source.setter
    def source(self, value: Any) -> None: ...
    @property
    def stack_trace(self) -> str | None:
        """The Python stack trace recorded when the node was made, if there is one."""
        ...
    @stack_trace.setter
    def stack_trace(self, value: str | None) -> None: ...
    @property
    def target(self) -> Callable[..., Any] | str:
        """What the node calls or names: a function for call_function, otherwise a string."""
        ...
    @target.setter
    def target(self, value: Callable[..., Any] | str) -> None: ...
    @property
    def type(self) -> Any:
        """A type annotation for the value, or None."""
        ...
    @type.setter
    def type(self, value: Any) -> None: ...
    def update_arg(self, idx: int, arg: Any) -> None:
        """Sets `args[idx]`."""
        ...
    def update_kwarg(self, key: Any, arg: Any) -> None:
        """Sets `kwargs[key]`."""
        ...
    @property
    def users(self) -> Users:
        """The nodes that use this one, each once, in the order in which they came to use it: a live
        view with the methods of a dictionary whose values are None.
        """
        ...
    @users.setter
    def users(self, value: Users) -> None: ...

@final
class NodeIterator:
    """A place in the list of nodes.

    The next few nodes are looked up together and kept, which is good for as long as the graph does
    not change.
    """
    def __iter__(self, /) -> NodeIterator: ...
    def __next__(self, /) -> Node: ...

@final
class Nodes:
    """The nodes of a graph in order, or in reverse. Nodes may come and go while it is iterated:
    what is inserted ahead is seen, what is erased is not.
    """
    def __contains__(self, key: Any, /) -> bool: ...
    def __iter__(self, /) -> NodeIterator: ...
    def __len__(self, /) -> int: ...
    def __reversed__(self) -> NodeIterator: ...
    @property
    def graph(self) -> Any:
        """The graph whose nodes these are."""
        ...
    @graph.setter
    def graph(self, value: Any) -> None: ...

class PanicException(BaseException):
    """The exception raised when Rust code called from Python panics.

    Like SystemExit, this exception is derived from BaseException so that
    it will typically propagate all the way through the stack and cause the
    Python interpreter to exit.
    """

@disjoint_base
class Proxy:
    """A value that flows through a program while it is recorded.

    Operators, methods and functions of PyTorch applied to it become nodes of a graph, and give
    proxies for those. ``Proxy(node)`` makes one that appends to the graph of ``node``, so that a
    transform can be written as an expression.

    A proxy cannot be iterated over, and control flow cannot depend on it: its value is not known.
    Either fix the value (``concrete_args``), or put the code in question into a function and keep
    that as one call with ``wrap``.
    """
    def __abs__(self, /) -> Any: ...
    def __add__(self, value: Any, /) -> Any: ...
    def __and__(self, value: Any, /) -> Any: ...
    def __bool__(self, /) -> bool: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __complex__(self) -> Any: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Any: ...
    def __delattr__(self, name: str, /) -> None: ...
    def __delitem__(self, key: Any, /) -> None: ...
    def __divmod__(self, value: Any, /) -> Any: ...
    def __eq__(self, value: Any, /) -> bool: ...
    def __float__(self, /) -> Any: ...
    def __floordiv__(self, value: Any, /) -> Any: ...
    def __format__(self, spec: Any) -> Any: ...
    def __ge__(self, value: Any, /) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __getstate__(self) -> Any: ...
    def __gt__(self, value: Any, /) -> Any: ...
    def __hash__(self, /) -> int: ...
    def __index__(self, /) -> Any: ...
    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def __int__(self, /) -> Any: ...
    def __invert__(self, /) -> Any: ...
    def __iter__(self, /) -> Any: ...
    def __le__(self, value: Any, /) -> Any: ...
    def __len__(self, /) -> int: ...
    def __lshift__(self, value: Any, /) -> Any: ...
    def __lt__(self, value: Any, /) -> Any: ...
    def __matmul__(self, value: Any, /) -> Any: ...
    def __mod__(self, value: Any, /) -> Any: ...
    def __mul__(self, value: Any, /) -> Any: ...
    def __ne__(self, value: Any, /) -> bool: ...
    def __neg__(self, /) -> Any: ...
    def __new__(cls, *_args: Any, **_kwargs: Any) -> Proxy: ...
    def __or__(self, value: Any, /) -> Any: ...
    def __pos__(self, /) -> Any: ...
    def __pow__(self, value: Any, mod: Any = None, /) -> Any: ...
    def __radd__(self, value: Any, /) -> Any: ...
    def __rand__(self, value: Any, /) -> Any: ...
    def __rdivmod__(self, value: Any, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    def __reversed__(self) -> Any: ...
    def __rfloordiv__(self, value: Any, /) -> Any: ...
    def __rlshift__(self, value: Any, /) -> Any: ...
    def __rmatmul__(self, value: Any, /) -> Any: ...
    def __rmod__(self, value: Any, /) -> Any: ...
    def __rmul__(self, value: Any, /) -> Any: ...
    def __ror__(self, value: Any, /) -> Any: ...
    def __round__(self, ndigits: Any = None) -> Any: ...
    def __rpow__(self, value: Any, mod: Any = None, /) -> Any: ...
    def __rrshift__(self, value: Any, /) -> Any: ...
    def __rshift__(self, value: Any, /) -> Any: ...
    def __rsub__(self, value: Any, /) -> Any: ...
    def __rtruediv__(self, value: Any, /) -> Any: ...
    def __rxor__(self, value: Any, /) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __setstate__(self, state: Any) -> Any: ...
    def __sub__(self, value: Any, /) -> Any: ...
    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any: ...
    def __truediv__(self, value: Any, /) -> Any: ...
    def __xor__(self, value: Any, /) -> Any: ...
    def keys(self) -> Any:
        """Recorded as a call of the method; a tracer that knows the keys may answer them."""
        ...
    @property
    def node(self) -> Node:
        """The node whose value the proxy stands for."""
        ...
    @node.setter
    def node(self, value: Node) -> None: ...
    @property
    def tracer(self) -> Any:
        """What records operations on this proxy."""
        ...
    @tracer.setter
    def tracer(self, value: Any) -> None: ...

@final
class Recording:
    """Watches a run of a program on the thread that it is called from.

    Args: ``ours``, the code objects of functions that record operators, in which nothing is looked at; ``asking``, code that
    asks whether somebody looks at the operators of tensors, or compiles it, and is told that nobody does; ``passages``, the
    code of functions through which modules are called and find their parts, in the order of [`PASSAGES`], or none;
    ``refused``, methods of C that cannot be recorded; ``printing``, the code of ``ours`` that prints; ``told``, an object with
    functions:

    - ``quiet(function, arguments, named)`` calls a function so that its operators are not recorded.
    - ``host(function)`` gives a function that does the same for a program that is not recorded any more.
    - ``prints(function, arguments, names)`` is told of each call that prints: of the function, or None for one of ``printing``
      that is being entered, all arguments and the names of the last ones, or None if they are not known. It gives why that
      cannot be done later.
    - ``assume(begins)`` is told when a function is entered and left that is marked to give constants.
    """
    def __new__(cls, ours: Any, asking: Any, passages: Any, refused: Any, printing: Any, told: Any) -> Recording: ...
    def ask(self, function: Any, *arguments: Any) -> Any:
        """A function tells how something is set that the program depends on: it is asked now, and before each call, unless the
        program has made the function or one of its arguments.
        """
        ...
    def conditions(self) -> Any:
        """Comparisons of symbols and integers that have to come out as they did; or a text that says what cannot be
        followed. For a recording that is finished.
        """
        ...
    def conditions_on_values(self) -> Any:
        """Conditions on values, after all of them are fixed if something cannot be followed. For a recording that is
        finished.
        """
        ...
    def count(self, places: Any) -> Any:
        """Places hold other numbers in each call, which are symbols: dictionaries with keys, and cells, which are their own
        keys.
        """
        ...
    @staticmethod
    def effects() -> Any:
        """The table of effects, for who tests it: what a function does, and where it is found."""
        ...
    def entered(self, code: Any) -> Any:
        """Whether the program has called code of ``ours``. For a recording that is finished."""
        ...
    def expression(self, own: Any) -> Any:
        """What a number stands for; None if it is none of the recording's. Also for a recording that is finished."""
        ...
    def finish(self, program: Any, given: Any, arguments: Any, replays: Any) -> Any:
        """What the program read, as guards, and what it has changed; or why it is not captured: `"writes"`, `"torch"`
        (something of PyTorch that is no operator) or `"opaque"`, and a text.

        Args: ``given``, the tensors among the arguments, which each call has others of; ``arguments``, those that are
        neither tensors nor constants; ``replays``, whether changes may be part of the program, and objects among
        the arguments others in each call.
        """
        ...
    def fix(self, own: Any) -> Any:
        """Symbols in a value have to be the numbers that they are. Also for a recording that is finished."""
        ...
    def made(self, object: Any) -> Any:
        """Whether the program has made an object, as far as the collector knows it. For a recording that is finished."""
        ...
    def makes_number(self) -> Any:
        """Whether the program gets the number that a method of a tensor gives, and no function of C that calls it."""
        ...
    def operator(self) -> Any:
        """An operator is being recorded: nothing is looked at until `recorded` is called. Whether anything is looked at."""
        ...
    def reads(self, container: Any) -> Any:
        """A container is among the arguments of an operator: what it holds is read."""
        ...
    def recorded(self) -> Any:
        """An operator has been recorded."""
        ...
    def refused_at(self) -> Any:
        """The file and the line of the program that does what cannot be recorded, where that is known. For a recording
        that is finished.
        """
        ...
    def run(self, program: Any, args: Any, kwargs: Any) -> Any:
        """Calls `program`, and watches it. Gives what it gives, and raises what it raises."""
        ...
    def symbol(self, expression: Any, value: Any, of_values: Any) -> Any:
        """A number that stands for a size, or for what depends on values: it is `value`, and no other object."""
        ...
    @staticmethod
    def unavailable() -> Any:
        """Why nothing can be watched here and now; None if it can."""
        ...

@final
class RewriteRule:
    """One rewrite rule."""
    @property
    def name(self) -> Any:
        """The rule's name."""
        ...
    @name.setter
    def name(self, value: Any) -> None: ...
    @property
    def variables(self) -> Any:
        """The names of the rule's variables."""
        ...
    @variables.setter
    def variables(self, value: Any) -> None: ...

@final
class Rewriter:
    """Replaces matches one by one, with what Python code may have made of them in between, and calls
    the hooks of the graph's owning module.
    """
    def __new__(cls, graph: Graph, pattern: Graph) -> Rewriter: ...
    def replace(self, nodes_map: Any, placeholder_nodes: Any, replacement: Any) -> Any:
        """Replaces one match, given by its `nodes_map` and `placeholder_nodes`, in which the
        placeholders stand for what the new nodes use afterwards. Answers the new nodes.
        """
        ...

@final
class RuleSet:
    """Rules that are searched for together."""
    def __len__(self, /) -> int: ...
    def __new__(cls, rules: Any) -> RuleSet: ...
    def apply(self, graph: Graph, make_match: Any, limit: Any = None, budget: Any = None) -> Any:
        """Applies the rules to `graph` until none matches any more, or `limit` rewrites were made.
        `make_match(values, roots)` makes what conditions are asked about. Answers every place where
        a pattern matched.
        """
        ...
    def places(self) -> Any:
        """The modules and attributes that results name by their paths in the module with the graph, each
        with the rule.
        """
        ...

@final
class Runner:
    """Runs the programs of a model for calls that nothing is special about."""
    def __new__(cls, compiled: Any) -> Runner: ...
    def add(self, key: Any, program: Any, inputs: Any, watch: Any, guards: Any = None, *, distinct: Any = False, build: Any = None) -> Any:
        """Runs calls with arguments like `inputs` by `program` from now on, as long as `guards` hold and the tensors
        are as `watch` knows them; if `distinct`, only those that give no tensor twice, because it was made by
        a run that could have asked. `key` is its name; `build` is called with what it gives, and makes of that what is
        returned.
        """
        ...
    def leave(self, arguments: Any, calls: Any) -> Any:
        """Leaves so many calls with arguments like these to PyTorch, which is faster than to look at them; not those
        of which an argument needs gradients.
        """
        ...
    def recent(self) -> Any:
        """The names of all programs; the one that was used last comes last."""
        ...
    def remove(self, key: Any) -> Any:
        """Forgets the program of this name."""
        ...
    def run(self, arguments: Any) -> Any:
        """What the model answers to these arguments; `HOST` for a call that is left to PyTorch, and
        `NotImplemented` for one that has to be looked at: of other shapes than there are programs for, or where
        autograd records, a mode is on, a weight has changed, somebody observes.
        """
        ...

class ShapeInferenceError(RuntimeError):
    """A call in a graph fails when it runs: the node, what it takes, and what it was given."""

@final
class SourceNotes:
    """Notes where in the user's program the nodes of one graph are made."""
    def __new__(cls) -> SourceNotes: ...
    def note(self, node: Node) -> Any:
        """`node`, of the same graph each time, is made by the line that the program is at."""
        ...

@disjoint_base
class TracerCore:
    """Records what happens to proxies. The Python class `corsac.fx.proxy.TracerBase` derives from
    this one.
    """
    def __new__(cls, *_args: Any, **_kwargs: Any) -> TracerCore: ...
    def _buffer_name(self, buffer: Any) -> Any:
        """The qualified name of a buffer of the root."""
        ...
    def _call_module(self, module: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What `call_module` does, unless overridden."""
        ...
    def _create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, name: str, type_expr: Any, proxy_factory_fn: Any) -> Any:
        """What `create_proxy` does, unless overridden."""
        ...
    def _index_root(self, root: Any, is_module: bool, code: Any) -> Any:
        """Prepares for a trace of `root`, by a function with this code. Answers the tensors that modules have as plain attributes."""
        ...
    def _module_name(self, module: torch.nn.Module) -> Any:
        """The qualified name of a module of the root."""
        ...
    def _note_origin(self, node: Node) -> Any:
        """Notes where a node comes from."""
        ...
    def _parameter_name(self, parameter: Any) -> Any:
        """The qualified name of a parameter of the root."""
        ...
    def _record(self, fn: Callable[..., Any], args: Any, names: Any, type_expr: Any) -> Any:
        """Calls `fn` and records what it does and what it returns."""
        ...
    def _succeed(self, node: Node) -> Any:
        """What is recorded from now on takes the place of `node`; of none for None."""
        ...
    @property
    def graph(self) -> Any:
        """The graph that is recorded into."""
        ...
    @graph.setter
    def graph(self, value: Any) -> None: ...
    @property
    def module_stack(self) -> Any:
        """The modules that are being called, outermost first."""
        ...
    @module_stack.setter
    def module_stack(self, value: Any) -> None: ...
    @property
    def node_name_to_scope(self) -> Any:
        """Path and class of the module that each node was made in, by the node's name."""
        ...
    @node_name_to_scope.setter
    def node_name_to_scope(self, value: Any) -> None: ...
    @property
    def num_calls(self) -> Any:
        """How often each module was called, by path."""
        ...
    @num_calls.setter
    def num_calls(self, value: Any) -> None: ...
    @property
    def scope(self) -> Any:
        """The module that is being called: its path and class."""
        ...
    @scope.setter
    def scope(self, value: Any) -> None: ...
    @property
    def submodule_paths(self) -> Any:
        """The path of each module of the root, while tracing one."""
        ...
    @submodule_paths.setter
    def submodule_paths(self, value: Any) -> None: ...

@final
class Types:
    """Types of the values of a graph, and what computing them costs."""
    def costs(self) -> Any:
        """What each node costs, in order: multiplications, floating-point operations, bytes read, bytes
        written; None for what is not known.
        """
        ...
    def fallbacks(self) -> Any:
        """Nodes that have no rule: name, target, and the reason."""
        ...
    def lifetimes(self) -> Any:
        """Each piece of memory: bytes, and the names of the first and the last node that need it."""
        ...
    def peak(self) -> Any:
        """The most bytes of activations held at once, the name of the node at which that is, bytes
        held while each node runs, and the names of nodes whose memory is not known.
        """
        ...
    def result_bytes(self) -> Any:
        """Bytes that each node's result takes, in order; None where sizes are not known."""
        ...
    def shown(self) -> Any:
        """What is known of each node's value, in order, as text: `float32[2, 3]`."""
        ...
    def uncounted(self) -> Any:
        """Why the cost of a node is not known, by the node's name."""
        ...
    def unknown(self) -> Any:
        """Nodes whose value is not known: name, target, and the reason."""
        ...
    def used_weights(self) -> Any:
        """The numbers of the parameters and buffers that each node uses, in order."""
        ...
    def values(self, places: Any = None) -> Any:
        """What is known of each node's value, in order: tensors as their metadata. With `places`, of the nodes with these
        numbers; raises `IndexError` for others than there are.
        """
        ...
    def weights(self) -> Any:
        """Parameters and buffers that the graph names: name, elements, bytes, whether it is a
        parameter, whether it is trained.
        """
        ...

@final
class Users:
    """The users of a node, in the order in which they came to use it. Reads like a dictionary from
    node to None, and always shows the graph as it is now.
    """
    def __contains__(self, key: Any, /) -> bool: ...
    def __eq__(self, value: Any, /) -> bool: ...
    def __ge__(self, value: Any, /) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __gt__(self, value: Any, /) -> Any: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __iter__(self, /) -> Any: ...
    def __le__(self, value: Any, /) -> Any: ...
    def __len__(self, /) -> int: ...
    def __lt__(self, value: Any, /) -> Any: ...
    def __ne__(self, value: Any, /) -> bool: ...
    def __reduce__(self) -> Any: ...
    def __repr__(self, /) -> str: ...
    def __reversed__(self) -> Any: ...
    def copy(self) -> dict[Node, None]:
        """The users as a dictionary, apart from the graph."""
        ...
    def get(self, key: Any, default: Any = None) -> Any: ...
    def items(self) -> ItemsView[Node, None]: ...
    def keys(self) -> KeysView[Node]: ...
    def values(self) -> ValuesView[None]: ...

@final
class Watch:
    """The state of a model that programs were compiled for: its tensors, with how often they were written
    to, and its modules, with whether they train and have hooks.

    It never changes, so that any code of Python may run while one looks: a model's own `_version` or
    truth value, another thread's call. A cycle of references through it goes through the dictionaries
    and modules that it holds, where the collector can break it.
    """
    def __new__(cls, root: Any, constants: Any = ..., *, trains: Any = False, contents: Any = ..., rewritten: Any = ...) -> Watch: ...
    @property
    def count(self) -> Any:
        """How many tensors are looked at."""
        ...
    @count.setter
    def count(self, value: Any) -> None: ...
    @property
    def counts_writes(self) -> Any:
        """Whether it can be seen that tensors are written to: not of large ones made in inference mode."""
        ...
    @counts_writes.setter
    def counts_writes(self, value: Any) -> None: ...
    def failure(self) -> Any:
        """The first tensor, or module, that is not as it was, and what has become of it; None if all are."""
        ...
    @property
    def has_hooks(self) -> Any:
        """Whether a module has hooks; in training those of the way back, too."""
        ...
    @has_hooks.setter
    def has_hooks(self, value: Any) -> None: ...
    def has_same_tensors(self) -> Any:
        """Whether all tensors are still in their places, whatever has become of them."""
        ...
    def is_current(self) -> Any:
        """Whether everything is still as it was."""
        ...
    def requires_grad(self) -> Any:
        """Whether a tensor wants a gradient."""
        ...
    def written(self) -> Any:
        """The tensors that were written to and are in their places, of the same sizes and types."""
        ...

@final
class WrappedFunction:
    """A function that is recorded as one call if it gets a proxy, and otherwise is itself.

    It is in place while any thread traces. In a thread that does not, it calls the function.
    """
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    @property
    def __wrapped__(self) -> Any: ...
    @__wrapped__.setter
    def __wrapped__(self, value: Any) -> None: ...

def active_traces() -> int:
    """How many traces are active in the process."""
    ...

def alternate_groups(on_device: Any, before: Any, together: Any, *, host_first: Any) -> Any:
    """Groups that take turns on host and device. `on_device` says of each of a number of things where
    it runs, `before` has pairs of which the first has to run before the second, `together` lists of
    those that have to run at once. Answers for each group whether it is the device's, and its
    things.
    """
    ...

def are_native(values: Any) -> Any:
    """Whether all of `values` are strided tensors of PyTorch itself on the CPU, of types that programs know."""
    ...

def assemble_code(wraps: Any, prologue: str, body: str) -> Any:
    """Puts code together from its parts: source, line map, line that the function starts on."""
    ...

def call_layers(graph: Graph, modules: Any) -> Any:
    """Calls modules, by path, in the place of what the nodes of `graph` call."""
    ...

def canonicalize(graph: Graph, *, budget: Any = None) -> Any:
    """Puts the nodes of `graph` into canonical order. Answers the nodes that have moved."""
    ...

def cast_layers(graph: Graph, *, budget: Any = None) -> Any:
    """Calls functions in the place of the modules whose weights autocast casts. Answers every call of
    such a module.
    """
    ...

def check_threads_setting() -> Any:
    """Raises `ValueError` where `CORSAC_NUM_THREADS` is no number of threads."""
    ...

def common_subexpressions(graph: Graph, *, keep: Any = ..., budget: Any = None) -> list[tuple[str, str, str | None, str | None]]:
    """Computes once what `graph` computes twice; nodes in `keep` stay and take nobody's place. Answers the
    nodes that were removed, each with the one that took its place, and those that stay, with the reason.
    """
    ...

def compile_graph(graph: Graph, inputs: Any, *, strict: Any = False, precision: Any = "f32") -> Any:
    """Compiles `graph`, whose `owning_module` has the weights, for tensors like `inputs`; numbers among
    them are compiled in.

    Raises `CompileError` for what the engine does not know, and `ShapeInferenceError` for a call
    that fails when it runs. Results are new tensors; `strict` makes it a `CompileError` if one would
    share memory with an input, a weight or another result in PyTorch, and what is returned twice one
    tensor. `precision` is `"f32"`, or `"bf16"` for convolutions and linear layers that multiply
    numbers rounded to bfloat16, where the processor can.
    """
    ...

def computing_again(target: Any) -> Any:
    """How long computing the elements of what an operator gives takes: "long", "none", "copied" (as long as
    reading and writing them) or "function".
    """
    ...

def convert_mkldnn(graph: Graph, supported: Any, with_operand: Any, unfit: Any, enter: Any, leave: Any) -> Any:
    """Finds the maximal subgraphs of `graph` that run on oneDNN's layout and puts calls of `enter`
    and `leave` around them.

    `supported` has classes of modules and functions, `with_operand` functions that belong to a
    subgraph if one of their operands does; `unfit` says of modules, by path, why they do not.
    Answers for each subgraph its nodes and its conversions, and the supported nodes that are in
    none, with the reason.
    """
    ...

def copy_submodules(source: Any, destination: Any, names: Any, otherwise: Any) -> Any:
    """Registers in `destination` the submodules of `source` with the given qualified names, with
    empty modules as containers on the way. Calls `otherwise` with each name that needs more than
    that, in its turn.
    """
    ...

def divisions_to_multiplications(graph: Graph, multiply: Any, *, budget: Any = None) -> Any:
    """Multiplies by the inverse where `graph` divides by a number; `multiply` is `operator.mul`. Answers
    the nodes that were changed, each with the divisor it had, and all divisions by numbers.
    """
    ...

def draft_code(request: Any, own_output: bool) -> Any:
    """The parts of the code of a graph. With `own_output`, what returns is left out."""
    ...

def draw_difference(before: Any, before_notes: Any, after: Any, after_notes: Any, style: Any) -> Any:
    """Writes a picture of what has to change in `before` to become `after`, as [`draw_graph`] does."""
    ...

def draw_graph(graph: Graph, notes: Any, style: Any) -> Any:
    """Writes a picture of `graph`. `notes` are pairs of a node and what is known of it; `style` says
    format (`svg`, `dot`, `html`), title, overlay, how deep modules are open, and whether nodes that
    compute sizes are left out.
    """
    ...

def draw_records(title: Any, records: Any, edges: Any) -> Any:
    """Writes an SVG of boxes of text, joined by lines from the first to the second of each pair."""
    ...

def effect_pairs(graph: Graph) -> Any:
    """Pairs of nodes of `graph` of which the first has to run before the second, though the second
    does not use it: one of the two writes to what the other uses.
    """
    ...

def eliminate_dead_code(graph: Graph, *, impure_random: bool = True, budget: Any = None) -> list[tuple[str, str, str | None, str | None]]:
    """Removes what nobody can observe from `graph`. Answers the nodes that were removed and those
    that nobody uses and that stay, with the reason.
    """
    ...

def explain_compilation(graph: Graph, inputs: Any, fallback: Any = None, *, strict: Any = False) -> Any:
    """The nodes of `graph` that the engine does not know, for tensors like `inputs`, with the reasons.
    `fallback` is as for `propagate_types`, and `strict` as for `compile_graph`.
    """
    ...

def extract_nodes(graph: Graph, nodes: Any, *, tuple_return: Any = False) -> Any:
    """Makes a graph of `nodes`, in this order: their inputs from elsewhere become its inputs, and
    what others use of them is what it gives. Answers the graph, and what its inputs and outputs
    are in the original.

    Inputs come in the order of their first use, but in graph order if all are inputs of the
    program. Raises KeyError if one of the nodes uses a later one.
    """
    ...

def extract_subgraph(graph: Graph, nodes: Any, inputs: Any, outputs: Any) -> Any:
    """Makes a graph that computes `nodes`, in this order, from `inputs` and gives a list of `outputs`.

    Raises KeyError if a node uses, or the result has, what is neither an input nor computed before.
    """
    ...

def find_constants(graph: Graph, skipped: Any, *, budget: Any = None) -> Any:
    """Finds what does not depend on the inputs of `graph`; calls in `skipped` count as if they did.
    Answers the constant nodes, those calls among them that other nodes use, and as sites those
    calls of constants that have to be made every time, with the reason. Changes nothing.
    """
    ...

def find_layers(graph: Graph, parameters: Any, *, budget: Any = None) -> Any:
    """The calls of functions in `graph` that modules can make, and all calls of such functions, with
    the reason where none can. `parameters` has the paths of all parameters.
    """
    ...

def find_linears(graph: Graph, unfit: Any, kinds: Any = None, *, budget: Any = None) -> Any:
    """The calls of `nn.Linear` in `graph` that can be changed, and all of them with the reason why they
    cannot. `unfit` says of layers, by path, why the host cannot change them. With `kinds`, a number
    by path, the calls come in groups that can be merged; otherwise each is a group.
    """
    ...

def find_part_cycle(graph: Graph, parts: Any, *, writes: Any = True) -> Any:
    """Whether each of `parts`, lists of nodes of `graph`, can run at once: no way leads out of one
    and back into it. Answers None if so, otherwise a message that names a cycle. What is written to
    is used in the order of the program, unless `writes` says that the caller sees to that.
    """
    ...

def first_failing(changes: Any, fails: Any) -> Any:
    """The smallest number of changes in 1..=changes with which `fails(number)` is true, given that it
    is with all of them and is not with none.
    """
    ...

def fold_batch_norms(graph: Graph, fold: Callable[[list[tuple[str, str]]], list[str | None]], *, linear: bool = False, budget: Any = None) -> list[tuple[str, str, str | None, str | None]]:
    """Folds batch norms into the layers beside them. `fold(plans)` gets a dictionary for each; it
    makes the new weights, in order, and answers for each the names of weight and bias, or why it
    cannot be done. Answers every batch norm, with the layer.
    """
    ...

def functions_to_operators(graph: Graph, *, budget: Any = None) -> Any:
    """Writes functions of `torch` in `graph` as operators of Python. Answers every call of one that
    Python has an operator for.
    """
    ...

def fuse_mkldnn(graph: Graph, nodes: Any) -> Any:
    """Makes the calls of convolutions and linear layers among `nodes`, a subgraph of `graph`, do what
    is done with their results at once. Answers all calls of such layers.
    """
    ...

def gather_parts(graph: Graph, parts: Any) -> Any:
    """Puts nodes of each of `parts`, lists of nodes of `graph`, side by side, where some nodes have to
    run after others that they do not use; changes nothing where none have to. Parts are called
    without seeing who writes to what, so that their places have to be right.

    Raises RuntimeError if the parts cannot run at once.
    """
    ...

def generate_code(request: Any) -> Any:
    """The code of a graph: source, globals, line map, line that the function starts on."""
    ...

def graph_effects(graph: Graph) -> list[tuple[tuple[list[Node], list[Node], bool, bool, bool, bool, bool], bool, int]]:
    """What each node of `graph` does besides computing its value, in order: the same as
    `node_effects`, whether nodes after it may compute something else than nodes before, whether it
    depends on how arguments lie in memory if it shares storage with them, and the number of the values
    that it may share storage with: 0 for inputs and attributes.
    """
    ...

def has_effects(graph: Graph) -> bool:
    """Whether a call of the program that `graph` is does anything besides computing its result."""
    ...

def infer_type(target: Any, args: Any, kwargs: Any) -> Any:
    """The type of what `target` gives for these arguments, by the rules: tensors as their metadata.
    A string is the name of a tensor method. Answers a tuple of one value, or the reason why there is
    none as text.
    """
    ...

def insert_casts(graph: Graph, dtype: Any, cast: Any, widest: Any, *, budget: Any = None) -> Any:
    """Inserts the casts of autocast: `cast(value, dtype)`, `widest(list)`. Answers every call that it
    casts for, with the type, and what it knows nothing of.
    """
    ...

def intercept_call(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """What `Module.__call__` does while traces are active."""
    ...

def intercept_getattr(module: torch.nn.Module, name: str) -> Any:
    """What `Module.__getattr__` does while traces are active."""
    ...

def invert(graph: Graph) -> Any:
    """The graph that computes the input of `graph` from its result; or the node that is in the way, and
    why. And every step, undone or not.
    """
    ...

def keyword_arguments(graph: Graph, *, budget: Any = None) -> Any:
    """Gives the arguments of PyTorch's functions in `graph` by keyword. Answers every call of one that
    had arguments by position.
    """
    ...

def knows_switches() -> Any:
    """Whether what is switched on is asked of functions of C++, for tests."""
    ...

def knows_tensor_layout() -> Any:
    """Whether structures of tensors are known, for tests."""
    ...

def makes_tensors_directly() -> Any:
    """Whether results of programs are made so, for tests."""
    ...

def map_aggregate(a: Any, fn: Callable[..., Any]) -> Any:
    """Applies `fn` to each value in `a` that is no tuple, list, dictionary or slice itself. The
    result has the same structure; its lists and dictionaries cannot be changed.
    """
    ...

def map_arg(a: Any, fn: Callable[..., Any]) -> Any:
    """Applies `fn` to each node in `a`, which may be nested tuples, lists, dictionaries and slices.
    The result has the same structure; its lists and dictionaries cannot be changed.
    """
    ...

def match_subgraph(pattern: Graph, graph: Graph, *, match_output: bool, match_placeholder: bool, remove_overlapping_matches: bool, ignore_literals: bool, node_name_match: str, schemas: Any, same_attribute: Any) -> Any:
    """Finds all places in `graph` where `pattern` occurs.

    `schemas` has the operators in the pattern whose calls may pass the same arguments in different
    ways. `same_attribute(wanted, found)` says whether an attribute that the pattern reads may
    stand for one that the graph reads.
    """
    ...

def merge_linears(graph: Graph, members: Any, merged: Any, getitem: Any) -> Any:
    """Makes one call of `merged`, the path of a module, out of calls of linear layers with the same
    input: `members` are the calls, each with the features that it gives, and whether its result is
    copied out of the merged one. Answers the new node.
    """
    ...

def merge_products(graph: Graph, split: Any = None, *, budget: Any = None) -> Any:
    """Makes one matrix product of several in `graph` with one right-hand side. `split(product,
    inputs)` takes the product apart, by default `torch.split` with the sizes. Answers every product.
    """
    ...

def mkldnn_table() -> Any:
    """The names of what is supported: classes of modules, functions, and functions that are supported
    with an operand that is.
    """
    ...

def modules_to_functions(graph: Graph, classes: Any = None, *, budget: Any = None) -> Any:
    """Calls functions in the place of modules of `graph`; with `classes`, qualified names, only of
    modules of those. Answers every call of such a module.
    """
    ...

def node_effects(node: Node) -> tuple[list[Node], list[Node], bool, bool, bool, bool, bool]:
    """What `node` does besides computing its value."""
    ...

def not_failing(entries: Any) -> Any:
    """Those of `entries`, which have `guards`, of which the guard that failed last holds now."""
    ...

def note_quiet_call(function: Any, arguments: Any, named: Any, is_new: Any) -> Any:
    """A call of a function of PyTorch has done nothing but compute results, which are all new memory, or none of them is."""
    ...

def observe_calls(start: Any) -> Any:
    """Counts those who want to see what each call does."""
    ...

def opcode_effect(minor: Any, name: str, arg: Any, jump: Any) -> int:
    """By how much an instruction of CPython 3.``minor`` makes the stack higher, as ``dis.stack_effect``."""
    ...

def opcode_operand(minor: Any, name: str, word: Any, flags: Any) -> int | None:
    """The argument of an opcode of CPython 3.``minor`` for a word that listings show: ``+`` of
    ``BINARY_OP``; for an index of a name, with the bits below it.

    Returns None where the opcode has no such word.
    """
    ...

def opcode_table(minor: Any) -> list[tuple[int, str, str, int]]:
    """The opcodes of CPython 3.``minor``: number, name, what the argument means, cache units.

    What the argument means is a word: "none", "count", "const", "name", "local", "free", "jump", ...
    """
    ...

def pad_input_of_linear(graph: Graph, call: Any, pad: Any) -> Any:
    """Puts a column of ones behind the input of `call`, a call of a linear layer; `pad` is
    `torch.nn.functional.pad`. Answers the new node.
    """
    ...

def parse_rules(text: str) -> Any:
    """Reads rules from their text form, one on a line."""
    ...

def partition_joint(graph: Graph, values: Any, forward_outputs: Any, fewest_bytes: Any) -> Any:
    """A joint graph in two, of which the first `forward_outputs` outputs are those of the way forward. Nodes
    are numbered in the order of the graph. `fewest_bytes` computes again all that is cheap.
    """
    ...

def place_by_cost(graph: Graph, sizes: Any, devices: Any, seconds: Any, rate: Any) -> Any:
    """Parts of `graph` that were combined as long as that saves time. `seconds` says how long each node
    takes, `rate` how many bytes a second move between devices.
    """
    ...

def place_by_exchange(graph: Graph, sizes: Any, devices: Any, seconds: Any, rate: Any) -> Any:
    """Parts of `graph` as by size, with calls swapped or moved where that saves time."""
    ...

def place_by_size(graph: Graph, sizes: Any, devices: Any) -> Any:
    """Parts of `graph` that fill one device after the other. `sizes` has the bytes of each node, of its
    value and with its parameters; `devices` the bytes and the number of each device.
    """
    ...

def place_of(own: Any) -> Any:
    """Where a strided tensor lies, as long as something lies there: the same for all views of it."""
    ...

def place_with_embeddings(graph: Graph, sizes: Any, devices: Any, bytes: Any, embeddings: Any) -> Any:
    """Parts of `graph` with embeddings on devices of their own, `bytes` large each, and copies of the rest
    on all of these. `embeddings` says of each node whether it is one.
    """
    ...

def places_in(*values: Any) -> Any:
    """Where those of the tensors in some values lie that are strided."""
    ...

def plant_panic(place: Any) -> Any:
    """For tests: the next compilation (`"compile"`) or run of a program (`"run"`) panics, once; None takes
    that back.
    """
    ...

def propagate_types(graph: Graph, inputs: Any, fallback: Any = None, *, fill: Any = True, cost: Any = False) -> Any:
    """Types of all values of `graph` for `inputs`, in the order of the placeholders.

    `fallback(node, values)` is asked about nodes without a rule, with what is known of their inputs
    as a dictionary from node to value; it answers a value, or None if it knows none. With `fill`,
    metadata is written to the nodes as `ShapeProp` does. With `cost`, costs are counted too.
    """
    ...

def propose_parts(graph: Graph, supported: Any, sections: Any = None, *, horizontal: Any = True, items: Any = True, writes: Any = True) -> Any:
    """Puts supported nodes together into as large parts as make no cycle.

    `supported` says of each node, in graph order, whether it is. With `horizontal`, nodes without
    connection may be in one part. Answers for each part its number, counting supported nodes from
    the end, its nodes in graph order, and those that joined it since what they take an item from
    is in it; without `items`, none do, and none leave a part for that. What is written to is used in
    the order of the program, unless `writes` says that the caller sees to that. `sections`, a number for
    each node that never falls, is for parts that do not reach from one section to the next; it needs
    `horizontal`.

    Raises `ValueError` if lists are not as long as the graph.
    """
    ...

def quiet_call(function: Any, arguments: Any, named: Any) -> Any:
    """Whether the results of a call are new memory, if it is known to do nothing but compute them; None if it is not known."""
    ...

def read_config(graph: Graph, text: str, format: Any, allowed: Any, max_nodes: Any) -> Any:
    """Reads a configuration and fills the empty `graph` with what it computes.

    Args:
        graph: an empty graph.
        text: the configuration.
        format: "graph", "toml" or "json".
        allowed: what it may name besides operators of torch: qualified names, with the functions
            or classes behind them.
        max_nodes: how many nodes the graph may have.

    Returns the model's name or None; the modules as (path, class, args, kwargs, line); the tensors
    as (path, is a parameter, dtype, shape, initial value, line), where the initial value is a word
    or a list of elements; the inputs as (name, dtype or None, shape or None).
    """
    ...

def register_interception(call: Any, getattr: Any, original_call: Any, original_getattr: Any, functions: Any, methods: Any) -> Any:
    """Says what is to be replaced: functions with the code that enters here, functions with the
    original code, and the registries of wrapped functions and methods.
    """
    ...

def register_proxy_support(torch_proxy: Any, torch_attribute: Any, appending_tracer: Any, assert_function: Any, explain_length: Any, explain_conversion: Any) -> Any:
    """Says what proxies need of the Python half of the package."""
    ...

def register_tracer_classes(base: Any, tracer: Any) -> Any:
    """Says which classes define the methods that may be overridden."""
    ...

def reinplace(graph: Graph, *, gradients: Any, budget: Any = None) -> Any:
    """Makes operators of `graph` overwrite their inputs where nobody can tell; with `gradients` only
    where gradients are computed without what is overwritten. Answers every call of an operator with
    an in-place form: what is called instead, or why it stays.
    """
    ...

def remove_dropout(graph: Graph, *, in_training: bool = False, budget: Any = None) -> list[tuple[str, str, str | None, str | None]]:
    """Removes dropouts that are the identity, with `in_training` also modules in training mode.
    Answers every dropout.
    """
    ...

def remove_no_ops(graph: Graph, *, budget: Any = None) -> Any:
    """Removes what computes what is there already. Answers every such node, with what takes its
    place.
    """
    ...

def rule_from_graphs(name: str, pattern: Graph, replacement: Any, condition: Any = None, build: Any = None, modules: Any = None) -> Any:
    """The rule that replaces what the graph `pattern` computes by what `replacement` computes.
    `condition(match)` says at each match whether it may. Without `replacement`, `build(match)`
    answers the graph that takes the place of a match, or None or a string, why nothing does. `modules`
    has, for the modules that the pattern calls, the class of `torch.nn` and the settings that count.
    """
    ...

def run_program(arguments: Any) -> Any:
    """Does what the native program does with this command line, the program's name first, and answers its
    exit code.
    """
    ...

def saturate(graph: Graph, rules: Any, cost: Any, make_types: Any, *, max_nodes: Any, max_seconds: Any, iterations: Any, fast_math: Any = False, budget: Any = None) -> Any:
    """Finds the cheapest program that rules make of `graph`, and changes the graph. Without `rules`,
    the laws of algebra. `cost` is a dictionary from operators or targets to numbers, or
    `cost(target, types)`, where `make_types(operands, result)` makes `types`.
    """
    ...

def shape_rules() -> Any:
    """The rules there are: family, names, and how arithmetic is counted."""
    ...

def simplification_laws() -> Any:
    """The laws that [`simplify`] applies, as text: the exact ones, and those of `fast_math`."""
    ...

def simplify(graph: Graph, *, fast_math: Any = False, limit: Any = None, budget: Any = None) -> Any:
    """Simplifies `graph` by the laws of algebra: those that hold to the last bit, or with `fast_math`
    also those that hold up to rounding. Answers every place where a law matched.
    """
    ...

def sort_breadth_first(graph: Graph, first: Any) -> Any:
    """Puts the nodes of `graph` in the order in which they can run, breadth first; calls of one of
    `first` come as soon as they can.

    Raises RuntimeError if nodes use each other in a cycle.
    """
    ...

def sort_nodes(graph: Graph, nodes: Any) -> Any:
    """`nodes` in an order in which each comes after those of them that it uses; among those that
    could come next, the one that comes first in `nodes` does.

    Raises AssertionError if they use each other in a cycle.
    """
    ...

def split_graph(graph: Graph, part_of: Any, names: Any, *, tagged: Any = False, local: Any = ..., companions: Any = None, regions: Any = ..., original_order: Any = False, original_names: Any = False, input_names: Any = True, tuple_return: Any = False) -> Any:
    """Splits `graph` into parts.

    `part_of` has the number of the part of each node, in graph order, or None; `names` what the
    calling graph calls each part. `tagged` writes the graphs as `split_by_tags` does, otherwise
    they are as `split_module` writes them. `local` are attributes that parts read themselves,
    `companions` maps nodes to those that have to be passed along with them, and each of `regions`
    is a node that turns a mode on, one that turns it off or None, and the numbers of the parts in
    between.

    Answers the calling graph with the targets in it, the same for each part, and the order in
    which the parts are called.

    Raises RuntimeError if parts need each other in a cycle, KeyError if a value is used before it
    is defined, AssertionError if `tagged` and a part uses values of a later one.
    """
    ...

def tensors_in(*values: Any) -> Any:
    """The tensors among the arguments or results of functions of PyTorch, which put them into tuples, lists and
    dictionaries.
    """
    ...

def unconvert_mkldnn(graph: Graph, starts: Any, ends: Any) -> Any:
    """Takes conversions away again that `convert_mkldnn` put into `graph`."""
    ...

def unusual_mode() -> Any:
    """What is switched on in this thread that only PyTorch can do; None as a rule."""
    ...

def user_frame() -> Any:
    """The innermost frame of the user's program."""
    ...

def user_location() -> Any:
    """File, line and function that the user's program is at."""
    ...

def write_config(graph: Graph, name: str, modules: Any, tensors: Any, inputs: Any, format: Any) -> Any:
    """Writes a configuration: what `read_config` returns, as lists, and the graph."""
    ...

def write_model_file(path: Any, text: str, inputs: Any, weights: Any) -> Any:
    """Writes a model file: the graph that `text` says, in the lossless form, what it takes, and the
    tensors that it names, with their bytes.
    """
    ...
