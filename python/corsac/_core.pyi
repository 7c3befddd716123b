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
    """An attribute of a proxy. Calling it records a call of a method; any other use records a read of
    the attribute.
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

class BalanceError(ValueError):
    """A graph that cannot be cut into so many parts, or within so much memory."""

@final
class Budget:
    """Limit on the number of changes that passes make, one after the other.

    Each pass asks for one unit before each change that it could make by itself, in a fixed order,
    and leaves the graph as it is where it gets none; its report then says so. Running with 0, 1, 2,
    ... units gives graphs of which two neighbours differ in one change, so that a wrong one is
    found by bisection. Without a limit every change is granted, and counted.
    """
    def __new__(cls, limit: Any = None) -> Budget: ...
    def __repr__(self, /) -> str: ...
    @property
    def left(self) -> Any:
        """Number of changes that may still be made; None without a limit."""
        ...
    @left.setter
    def left(self, value: Any) -> None: ...
    @property
    def limit(self) -> Any:
        """Number of changes that may be made in all; None without a limit."""
        ...
    @limit.setter
    def limit(self, value: Any) -> None: ...
    @property
    def spent(self) -> Any:
        """Number of changes made so far."""
        ...
    @spent.setter
    def spent(self, value: Any) -> None: ...
    def take(self) -> Any:
        """Ask for one change; returns whether it may be made."""
        ...

class BytecodeError(ValueError):
    """Invalid bytes of code, instructions that cannot be encoded, or code that the interpreter cannot run.

    Has the attribute `offset`, in bytes, or None.
    """

@final
class CacheFolder:
    """A folder that keeps facts about compiled programs for other processes.

    Entries are found by facts: names and texts that cover all that they depend on, besides the
    version of corsac and the processor, which always count. `limit` is a size such as `"64M"`, its
    default. Raises `OSError` if the folder cannot be made, belongs to another user or can be
    written to by others, and `ValueError` for a limit that is no size.
    """
    def __new__(cls, path: Any, limit: Any = None) -> CacheFolder: ...
    def clear(self) -> int:
        """Remove all entries; returns their number."""
        ...
    def contents(self) -> tuple[int, int]:
        """Number of entries, and their size on the disk in bytes."""
        ...
    def get(self, facts: Any) -> tuple[str, dict[str, float]] | None:
        """The steps of a program, and the seconds that each way to run it took; None if there is no
        entry.
        """
        ...
    @property
    def limit_bytes(self) -> int:
        """Largest size of the folder in bytes."""
        ...
    @limit_bytes.setter
    def limit_bytes(self, value: int) -> None: ...
    def put(self, facts: Any, program: Any, seconds: Any) -> None:
        """Write an entry; raises `OSError` if it cannot be written."""
        ...

@final
class CodeDraft:
    """The parts of the code of a graph, for a code generator that overrides some of them."""
    @property
    def free_vars(self) -> Any:
        """The inputs, as written between the parentheses of a definition."""
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
        """Indices of pieces that are left out, each with its output node."""
        ...
    @outputs.setter
    def outputs(self, value: Any) -> None: ...
    @property
    def pieces(self) -> Any:
        """The body, in the pieces that transformers of bodies get."""
        ...
    @pieces.setter
    def pieces(self, value: Any) -> None: ...
    @property
    def renamed(self) -> Any:
        """Nodes whose variables are not named after them."""
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
        """Objects in arguments, with their expressions."""
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
    """A graph that cannot be compiled: the node, and the reason."""

class ConfigError(ValueError):
    """An invalid configuration, or a model that cannot be described by one.

    Has the attributes `line` and `column`, counted from 1; both are None where a model cannot be described.
    """

@final
class Dim:
    """A size that depends on symbols: `batch`, `2*seq + 1`. Equal expressions are equal.

    A symbol stands for any integer of at least 2.
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
        """Value for the symbols' values in `sizes`; raises `KeyError` if one is missing."""
        ...

FAILED: Any

@disjoint_base
class Graph:
    """A program: nodes in order. The Python class `corsac.fx.Graph` derives from this one and adds
    code generation.
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
        """Number of nodes."""
        ...
    @_len.setter
    def _len(self, value: int) -> None: ...
    def _lint(self) -> Any:
        """Checks that the graph is valid; `_check_targets` checks that its attributes and submodules
        exist.
        """
        ...
    def _parse(self, text: str, allow: Any = None) -> Any:
        """Fills this empty graph from `text`, whose names must be allowed by `allow`, a predicate or a
        collection of names.
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
        """The table of `print_tabular`."""
        ...
    def call_function(self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None, type_expr: Any = None, name: str | None = None) -> Node:
        """A call of the function `the_function`."""
        ...
    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of the method called `method_name` on `args[0]`."""
        ...
    def canonical_hash(self) -> Any:
        """A hash, as 32 hexadecimal digits, that is equal for graphs that compute the same in the same
        way: it does not depend on the names of values nor on the order of independent nodes. It
        does depend on opcodes, targets, arguments, the names and order of inputs, and on the order
        of writes, uses of random numbers and other effects. Weights are not in the graph: their
        names count. Constants that are tensors or objects count by identity, so that hashes of
        graphs with such constants are comparable within one process only.
        """
        ...
    def copy_with_values(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool) -> Any:
        """As `graph_copy`, where the value of some node of `g` is no node."""
        ...
    def create_node(self, op: str, target: Any, args: Any = None, kwargs: Any = None, name: str | None = None, type_expr: Any = None) -> Node:
        """Creates a node at the insertion point.

        `op` is one of the six opcodes, `target` a function for call_function and otherwise a
        string, `args` a tuple, `kwargs` a dictionary. `name` is the preferred name of the value,
        `type_expr` a type annotation.
        """
        ...
    def diff(self, other: Any) -> Any:
        """The changes that turn this graph into `other`.

        Nodes are matched by their computation before they are matched by name, so that a renamed
        node does not make the nodes that use it differ. Print the result to see it.
        """
        ...
    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes whose value is unused, unless they do something that can be observed: write
        to an input, an attribute or a value that is used later (or that shares storage with it),
        use random numbers, have a registered side effect, or call something unknown. Returns
        whether the graph has changed; graph modules that it names as attributes are cleaned too.

        With `is_impure_node`, that function alone decides which unused nodes stay, as in torch.fx.
        """
        ...
    def erase_node(self, to_erase: Node) -> None:
        """Removes a node without users from the graph."""
        ...
    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes with this opcode, and this target where one is given, in time proportional to
        their number. With `sort`, in graph order.
        """
        ...
    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies all nodes of `g` up to its output node to the insertion point. `val_map` has the
        values of some nodes of `g` in this graph, and afterwards those of all. Returns the value of
        the output of `g` in this graph; with `return_output_node`, also the output node of `g`.
        """
        ...
    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """Sets the insertion point right after `n`; after everything for None. As a context manager,
        until the end of the `with` block.
        """
        ...
    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """Sets the insertion point before `n`; before everything for None. As a context manager, until
        the end of the `with` block.
        """
        ...
    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] | None = None) -> Node:
        """Copies a node of another graph (or this one) to the insertion point. `arg_transform(node)`
        returns the replacement of each node in its arguments.
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
        """An input of the program, called `name`. `*name` and `**name` take the remaining arguments."""
        ...
    def portable_hash(self) -> str | None:
        """The hash of `canonical_hash`, which is the same in every process; None if there are
        constants that count by identity.
        """
        ...
    def to_lossless(self) -> Any:
        """The graph as text that `Graph.parse` reads back without loss.

        Functions, classes and types are written by name, and are found again under those names when
        the text is read. A value without such a name, such as a tensor, is written without one, and
        reading such a text is an error. Metadata and attributes are left out.
        """
        ...
    def topological_sort(self) -> Any:
        """Orders the nodes so that each comes after all it uses; returns the number of nodes that
        moved.

        Nodes that come too early move to just behind the nodes that they wait for, and all others
        keep their order. Effects that no argument expresses, such as changes in place, are not
        considered.

        Raises `RuntimeError` if nodes use each other in a cycle; the graph is then as it was.
        """
        ...

@final
class GraphDiff:
    """The differences between two graphs. Prints like a unified diff of the two, without the numbers
    of users; is false if there are none.
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
        """Nodes in both that differ: the node before, the node after, and those of "name", "target",
        "args", "kwargs" and "type" that differ.
        """
        ...
    @changed.setter
    def changed(self, value: Any) -> None: ...
    @property
    def moved(self) -> Any:
        """Nodes of the second graph that have another position than in the first."""
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
    """Invalid text of a graph, or a name in it that cannot be found.

    Has the attributes `line` and `column`, counted from 1, `expected` and `found`; all are None where a name was not found.
    """

@final
class Guards:
    """State that a program read when it was captured. A call may use the program if all of it is
    unchanged.
    """
    def __len__(self, /) -> int: ...
    def counters(self) -> Any:
        """Places of numbers that the program replaces: dictionaries with keys, and cells."""
        ...
    def failure(self, program: Any) -> Any:
        """The first failing guard in words: place, old value, current value, and the file and line of
        the first read; None if all hold.
        """
        ...
    def find(self, arguments: Any) -> Any:
        """Finds the tensors and the objects in arguments and in state: in the places, and with the
        numbers, of the recorded call. Returns None if something else is there.

        `arguments` are those that are neither tensors nor constants.
        """
        ...
    def hold(self) -> Any:
        """Whether all state that the program read is unchanged."""
        ...
    def list(self, program: Any) -> Any:
        """All guards in words: family, place, condition, and the file and line of the first read, if
        it was the program's. Paths begin at `program`.
        """
        ...
    def reason(self) -> Any:
        """Description of a change, for people; None if there is none."""
        ...

HOST: Any

@final
class InsertPoint:
    """Restores the insertion point of a graph at the end of a `with` block."""
    def __enter__(self) -> None: ...
    def __exit__(self, _class: Any, _value: Any, _traceback: Any) -> None: ...

@final
class Instructions:
    """Instructions of a code object with labels in place of offsets."""
    def assemble(self, first_line: Any) -> list[bytes]:
        """Write the code: ``co_code``, ``co_exceptiontable``, ``co_linetable``."""
        ...
    def blocks(self) -> list[tuple[int, int, list[int], list[int]]]:
        """The basic blocks: first instruction, end (exclusive), blocks that may run next, blocks that
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
        """The lines of ``text``: opcode, number, argument, argument as text, offset, offset of its
        first ``EXTENDED_ARG``, target or None, whether it starts a line, label or None, place.
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
            parameters: the number of local variables that are parameters.
            consts, names: ``co_consts`` and ``co_names``.
            locals: the local variables, cells and free variables, by slot.
            free: the number of free variables, which come last.
        """
        ...

@final
class LineMap:
    """The node of each line of a generated function, converted to a dictionary on demand."""
    def __reduce__(self) -> Any: ...
    def to_dict(self) -> Any:
        """A dictionary from line (the `def` line being 0) to the index of the node, None before the
        first.
        """
        ...

@final
class Matches:
    """The matches of a pattern in a graph."""
    def __len__(self, /) -> int: ...
    def nodes(self, index: int) -> Any:
        """Parts of match number `index`: a map from nodes of the pattern to values, the values of the
        pattern's placeholders, and the values that it returns.
        """
        ...
    def replace(self, replacement: Any, anchor: Any, result: Any, list_added: Any) -> Any:
        """Replaces all matches by `replacement`. Returns for each `result(anchor, nodes_map)`, or with
        `list_added` `result(anchor, nodes_map, added)`, where `nodes_map` maps nodes of the pattern
        to values. No hooks are called.
        """
        ...

@final
class ModelDraft:
    """A model without its weights: the graph of `text`, in the lossless form, its inputs, the types of the tensors
    that it names, the symbols among its sizes, the nodes that have to be true, the state behind its inputs, and graphs
    that it calls, by name.
    """
    def __new__(cls, text: str, inputs: Any, weights: Any, symbols: Any, conditions: Any, state: Any = ..., graphs: Any = ...) -> ModelDraft: ...
    def check(self, values: Any) -> Any:
        """Floating-point operations of a call with these values of the symbols; None if it needs more memory than
        files may ask for. Raises `ValueError` if the model does not take such sizes.
        """
        ...
    def check_shapes(self, shapes: Any) -> Any:
        """Checks that it takes inputs of these shapes, one for each; raises `ValueError` if not."""
        ...

@final
class ModelFile:
    """A model file, read and checked."""
    def __new__(cls, path: Any) -> ModelFile: ...
    @property
    def conditions(self) -> Any:
        """The names of the nodes of the graph that have to be true."""
        ...
    @conditions.setter
    def conditions(self, value: Any) -> None: ...
    @property
    def graphs(self) -> Any:
        """The graphs that it calls: names, and texts in the lossless form."""
        ...
    @graphs.setter
    def graphs(self, value: Any) -> None: ...
    @property
    def has_sessions(self) -> Any:
        """Whether it runs in sessions: it has state, or several programs."""
        ...
    @has_sessions.setter
    def has_sessions(self, value: Any) -> None: ...
    @property
    def inputs(self) -> Any:
        """Its inputs: names, element types, sizes, which may be expressions of symbols."""
        ...
    @inputs.setter
    def inputs(self, value: Any) -> None: ...
    @property
    def outputs(self) -> Any:
        """Its outputs: places in the result, element types, sizes, which may be expressions of symbols, or `"?"`."""
        ...
    @outputs.setter
    def outputs(self, value: Any) -> None: ...
    def program(self, shapes: Any) -> Any:
        """Its program for inputs of these shapes, with packed weights. Raises `ValueError` if it does not take
        them.
        """
        ...
    @property
    def symbols(self) -> Any:
        """The symbols among the sizes of its inputs: names, least and largest values."""
        ...
    @symbols.setter
    def symbols(self, value: Any) -> None: ...
    @property
    def text(self) -> Any:
        """The graph, in the lossless form."""
        ...
    @text.setter
    def text(self, value: Any) -> None: ...
    def weight_bytes(self, number: Any) -> Any:
        """The bytes of the weight with this number, in little-endian and row-major order."""
        ...
    @property
    def weights(self) -> Any:
        """Its weights: names, element types, sizes."""
        ...
    @weights.setter
    def weights(self, value: Any) -> None: ...

class ModelFileError(ValueError):
    """A file that is no model file, is damaged, or exceeds a limit."""

@final
class ModelGuards:
    """State of a model that programs were compiled for: its tensors, with their numbers of writes, and
    its modules, with their training modes and hooks.

    It never changes, so that any code of Python may run during a check: a model's own `_version` or
    truth value, another thread's call. A cycle of references through it goes through the
    dictionaries and modules that it holds, where the garbage collector can break it.
    """
    def __new__(cls, root: Any, constants: Any = ..., *, trains: Any = False, contents: Any = ..., rewritten: Any = ..., typed: Any = ...) -> ModelGuards: ...
    @property
    def count(self) -> Any:
        """Number of tensors that are guarded."""
        ...
    @count.setter
    def count(self, value: Any) -> None: ...
    @property
    def counts_writes(self) -> Any:
        """Whether all writes to tensors can be detected: not those to large ones made in inference
        mode.
        """
        ...
    @counts_writes.setter
    def counts_writes(self, value: Any) -> None: ...
    def failure(self) -> Any:
        """The first tensor or module that has changed, and its change; None if none has."""
        ...
    @property
    def has_hooks(self) -> Any:
        """Whether a module has hooks; in training, backward hooks count, too."""
        ...
    @has_hooks.setter
    def has_hooks(self, value: Any) -> None: ...
    def has_same_tensors(self) -> Any:
        """Whether all tensors are still in their places, whatever their changes."""
        ...
    def is_current(self) -> Any:
        """Whether all of this state is unchanged."""
        ...
    def requires_grad(self) -> Any:
        """Whether a tensor requires a gradient."""
        ...
    def written(self) -> Any:
        """The tensors that were written to, and have kept their places, sizes and types."""
        ...

@final
class Namespace:
    """Creates names of which no two are the same."""
    def __new__(cls) -> Namespace: ...
    def create(self, candidate: str, may_shadow: bool) -> str:
        """A new name based on `candidate`, which may be that of a builtin if `may_shadow`."""
        ...
    def mark_used(self, name: str) -> None:
        """Marks `name` as used."""
        ...
    def used(self) -> Any:
        """All names that are used."""
        ...

@final
class NativeModel:
    """A graph with the facts about its modules and weights. Programs compiled from it share packed
    weights, and the memory for values.

    It uses the weights as they are when it is made, and the graph must not change.
    """
    def __new__(cls, graph: Graph, *, strict: Any = False, precision: Any = "f32", any_rows: Any = False, after: Any = None) -> NativeModel: ...
    def compile(self, inputs: Any, *, writes: Any = False) -> Any:
        """Compiles a program for tensors like `inputs`; numbers among them are compiled in. Raises the
        exceptions of `compile_graph`. With `writes` the program may write to its inputs: calls
        raise `ValueError` where these share memory with others or with a weight, or are not
        contiguous.
        """
        ...

@final
class NativeProgram:
    """A graph as a native program, for inputs of fixed shapes."""
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __str__(self, /) -> str: ...
    @property
    def arena_bytes(self) -> Any:
        """Bytes of the values of a run, without weights and inputs."""
        ...
    @arena_bytes.setter
    def arena_bytes(self, value: Any) -> None: ...
    @property
    def output_dtypes(self) -> Any:
        """The element types of the results, by PyTorch's names."""
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
        """Precision of multiplications in convolutions and linear layers: `"bf16"` where it was
        requested and the processor supports it.
        """
        ...
    @precision.setter
    def precision(self, value: Any) -> None: ...
    def profile(self, *arguments: Any) -> Any:
        """Like a call; returns its result, and the seconds that each step took."""
        ...
    def returned(self, results: Any) -> Any:
        """The value that the graph returns, with `results` in place of tensors."""
        ...
    def run(self, inputs: Any, outputs: Any) -> Any:
        """Run the program on arrays in row-major order, and write the results to others: float32, also
        for numbers of 16 bits, float64, int64 for all integers, and bytes for truth values. The
        interpreter is released meanwhile. The number of threads is `CORSAC_NUM_THREADS`, or that of
        the cores: PyTorch may be absent.
        """
        ...
    @property
    def step_count(self) -> Any:
        """Number of steps of a run."""
        ...
    @step_count.setter
    def step_count(self, value: Any) -> None: ...
    @property
    def steps(self) -> Any:
        """The steps, one line of text each."""
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
    """One step of a program: its operation (`op`), the function, module or name that it applies to
    (`target`), and its arguments (`args`, `kwargs`).

    A node is made by the methods of `Graph` and is the same object (`is`) for as long as it is in
    its graph. `meta` is a dictionary for notes about the node, and other attributes may be set
    freely.

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
        """Whether the node was removed from its graph."""
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
        """A target as the printed graph shows it: a name as it is, a callable by its qualified name."""
        ...
    @property
    def _prev(self) -> Node: ...
    @_prev.setter
    def _prev(self, value: Node) -> None: ...
    def _rename(self, candidate: str) -> Any:
        """Gives the value the first free name based on `candidate`."""
        ...
    def _replace_input_with(self, old_input: Node, new_input: Node) -> Any: ...
    @property
    def _repr_fn(self) -> Any:
        """The function that users have set to print the node with, or None."""
        ...
    @_repr_fn.setter
    def _repr_fn(self, value: Any) -> None: ...
    def _repr_html_(self) -> Any:
        """Properties of the node, as HTML for notebooks."""
        ...
    @property
    def _sort_key(self) -> tuple[int, ...]:
        """A key that increases along the graph."""
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
        """The line of the node in the printed graph.

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
        outputs, modules marked `_is_impure`, functions with side effects, and, with
        `impure_random`, functions that use random numbers.
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
        """A dictionary for notes about the node. Copied with the node."""
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
        values filled in: a pair of args and kwargs, or None where they are unknown.

        `root` is the module that call_module targets are looked up in; types select overloads.
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
        """Makes all users of this node use `replace_with` instead, and returns these users.

        `delete_user_cb(user)` may decide for each user whether it changes. With `propagate_meta`,
        the replacement, which must have none yet, gets this node's meta.
        """
        ...
    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Makes this node use `new_input` wherever it uses `old_input`."""
        ...
    @property
    def source(self) -> Any:
        """Location in the user's program where the node was made: file, line, function and module
        path, or None where no program made it.
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
        """The target: a function for call_function, otherwise a string."""
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
    """A position in the list of nodes.

    The next few nodes are looked up together and cached, for as long as the graph does not change.
    """
    def __iter__(self, /) -> NodeIterator: ...
    def __next__(self, /) -> Node: ...

@final
class Nodes:
    """The nodes of a graph in order, or in reverse. Nodes may come and go during an iteration: those
    inserted ahead are seen, erased ones are not.
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

    Operators, methods and functions of PyTorch applied to it become nodes of a graph, and return
    proxies for those. ``Proxy(node)`` makes one that appends to the graph of ``node``, so that a
    transform can be written as an expression.

    A proxy cannot be iterated over, and control flow cannot depend on it: its value is unknown.
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
        """Recorded as a call of the method; a tracer that knows the keys may return them."""
        ...
    @property
    def node(self) -> Node:
        """The node whose value the proxy stands for."""
        ...
    @node.setter
    def node(self, value: Node) -> None: ...
    @property
    def tracer(self) -> Any:
        """The tracer that records operations on this proxy."""
        ...
    @tracer.setter
    def tracer(self, value: Any) -> None: ...

@final
class RecordedTensors:
    """Tensors of a recorded program: their nodes, and their memory."""
    def __new__(cls, recording: Any, graph: Graph, sources: Any, metadata: Any) -> RecordedTensors: ...
    def add_weight(self, own: Any, node: Node) -> Any:
        """Notes the node of an existing tensor that is no input, and lives as long as the recording."""
        ...
    def constants(self) -> Any:
        """The nodes whose results do not depend on inputs."""
        ...
    def depend_on_inputs(self) -> Any:
        """Treats all placeholders as inputs: values computed from them are no constants."""
        ...
    def is_made(self, storage: Any) -> Any:
        """Whether the program has made a storage."""
        ...
    def know(self, own: Any, node: Node) -> Any:
        """Notes the node of a tensor."""
        ...
    def node_of(self, own: Any) -> Any:
        """The node of an input or a result; None for other tensors."""
        ...
    def note_constant(self, node: Node, written: Any, read: Any, result: Any, varies: Any) -> Any:
        """Notes a new node, which may be a constant: the tensors that it has written to and read, its
        result, and whether it reads something else that differs between calls.
        """
        ...
    def note_made(self, values: Any) -> Any:
        """Notes that the tensors in `values` are new memory. Returns their storages."""
        ...
    def note_typed(self, own: Any) -> Any:
        """Notes that types or sizes of a tensor were read, unless it is an input or a result."""
        ...
    def repeat(self, weight: Any, function: Any, arguments: Any, named: Any) -> Any:
        """Calls a function of PyTorch and makes its node, if an equal call is known to be one node and
        to do nothing but compute. Returns None if the call has not been made, or else the result,
        and whether the node has been made. `weight` returns the node of an existing tensor, or None.
        """
        ...
    def take_weight(self, own: Any) -> Any:
        """Forgets the node of an existing tensor, and returns it."""
        ...
    def typed(self) -> Any:
        """The tensors that are neither inputs nor results, of which types or sizes were read."""
        ...
    def weight_node(self, own: Any) -> Any:
        """The node of a weight, or of another existing tensor that is no input; None for others."""
        ...
    def written_constants(self, returned: Any) -> Any:
        """The nodes of constants that involve writes, in order, with their results, if none of
        `returned` shares their memory.
        """
        ...

@final
class Recording:
    """Watches a run of a program on the calling thread.

    Args: ``ours``, code objects of functions that record operators, which are not analysed;
    ``asking``, code that asks whether operators of tensors are intercepted, or whether it is being
    compiled, and gets no for an answer; ``known_code``, code of functions through which modules are
    called and find their parts, in the order of [`KNOWN_CODE`], or none; ``refused``, methods of C
    that cannot be recorded; ``printing``, the code of ``ours`` that prints; ``callbacks``, an object
    with callbacks:

    - ``unrecorded(function, arguments, named)`` calls a function without recording its operators.
    - ``host(function)`` returns a function that does the same for a program that is no longer
      recorded, unless the call becomes nodes, and whether it does.
    - ``prints(function, arguments, names)`` is called for each call that prints: with the function,
      or None for one of ``printing`` that is being entered, all arguments and the names of the last
      ones, or None if they are not known. It returns the reason why the call cannot be made later,
      if there is one.
    - ``assume(begins)`` is called when a function that is marked to return constants is entered and
      left.
    """
    def __new__(cls, ours: Any, asking: Any, known_code: Any, refused: Any, printing: Any, callbacks: Any) -> Recording: ...
    def ask(self, function: Any, *arguments: Any) -> Any:
        """Guard a setting that the program depends on: the function is called now, and before each
        call, unless the program has made the function or one of its arguments.
        """
        ...
    def ask_on_entry(self, code: Any, function: Any, *arguments: Any) -> Any:
        """Guard a setting once the program calls this code of ``ours``, which may change it: as it is before the first
        call.
        """
        ...
    def conditions(self) -> Any:
        """Comparisons of symbols and integers that have to give the same results again; or the name of
        an operation that cannot be followed. For a recording that is finished.
        """
        ...
    def conditions_on_values(self) -> Any:
        """Conditions on values, with all symbols fixed if an operation cannot be followed. For a
        recording that is finished.
        """
        ...
    def count(self, places: Any) -> Any:
        """Set the places that hold other numbers in each call, which become symbols: dictionaries with
        keys, and cells, which are their own keys.
        """
        ...
    @staticmethod
    def effects() -> Any:
        """The table of effects, for tests: effects of functions, and their paths."""
        ...
    def entered(self, code: Any) -> Any:
        """Whether the program has called this code of ``ours``. For a recording that is finished."""
        ...
    def expression(self, own: Any) -> Any:
        """Expression that a number stands for; None if it is not one of this recording. Also for a
        recording that is finished.
        """
        ...
    def finish(self, program: Any, given: Any, arguments: Any, replays: Any) -> Any:
        """Reads of the program as guards, and its changes; or the reason why it is not captured:
        `"prints"`, `"writes"`, `"torch"` (something of PyTorch that is no operator) or `"opaque"`,
        and a text.

        Args: ``given``, the tensors among the arguments, which differ in each call; ``arguments``,
        those that are neither tensors nor constants; ``replays``, whether changes may be part of
        the program, and objects among the arguments may differ in each call.
        """
        ...
    def fix(self, own: Any) -> Any:
        """Fix the symbols in a value to their numbers. Also for a recording that is finished."""
        ...
    def made(self, object: Any) -> Any:
        """Whether the program has made an object, as far as the garbage collector tracks it. For a
        recording that is finished.
        """
        ...
    def makes_number(self) -> Any:
        """Whether the number that a tensor method returns goes to the program, not to a C function
        that calls the method.
        """
        ...
    def operator(self) -> Any:
        """Begin to record an operator: nothing is analysed until `recorded` is called. Returns whether
        the program is still analysed.
        """
        ...
    def reads(self, container: Any) -> Any:
        """Record a read of the contents of a container that is an argument of an operator."""
        ...
    def recorded(self) -> Any:
        """End the recording of an operator."""
        ...
    def refused_at(self) -> Any:
        """File and line of the program that does what cannot be recorded, if known. For a recording
        that is finished.
        """
        ...
    def run(self, program: Any, args: Any, kwargs: Any) -> Any:
        """Call `program`, and watch it. Returns its result, and raises its exceptions."""
        ...
    def symbol(self, expression: Any, value: Any, of_values: Any) -> Any:
        """A new object with the value of `value` that stands for a size or, `of_values`, for an
        expression of tensor values.
        """
        ...
    @staticmethod
    def unavailable() -> Any:
        """The reason why nothing can be watched here and now; None if it can."""
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
    """Replaces matches one by one, whose values Python code may change in between, and calls the hooks
    of the graph's owning module.
    """
    def __new__(cls, graph: Graph, pattern: Graph) -> Rewriter: ...
    def replace(self, nodes_map: Any, placeholder_nodes: Any, replacement: Any) -> Any:
        """Replaces one match, given by its `nodes_map` and `placeholder_nodes`, in which the
        placeholders' values become those that the new nodes use. Returns the new nodes.
        """
        ...

@final
class RuleSet:
    """Rules that are searched for together."""
    def __len__(self, /) -> int: ...
    def __new__(cls, rules: Any) -> RuleSet: ...
    def apply(self, graph: Graph, make_match: Any, limit: Any = None, budget: Any = None) -> Any:
        """Applies the rules to `graph` until none matches any more, or `limit` rewrites were made.
        `make_match(values, roots)` makes the argument of conditions. Returns every place where a
        pattern matched.
        """
        ...
    def places(self) -> Any:
        """Paths of the modules and attributes that results name, in the module with the graph, each
        after the name of its rule.
        """
        ...

@final
class Runner:
    """Runs the programs of a model for ordinary calls."""
    def __new__(cls, compiled: Any, *, autocast: Any = False) -> Runner: ...
    def add(self, key: Any, program: Any, arguments: Any, model_guards: Any, recorded: Any = None) -> Any:
        """Runs calls with arguments like these by a program from now on.

        Args:
            key: its name.
            program: takes the tensors among the arguments; if it was recorded, each tensor once,
                followed by those that it finds in containers and in state, and by those that are
                rewritten.
            arguments: positional arguments of a call that it is for.
            model_guards: checks that its weights are unchanged.
            recorded: a `corsac._compile.recorded_programs.RecordedCall`; None for a graph.
        """
        ...
    def leave(self, arguments: Any, keywords: Any, calls: Any) -> Any:
        """Leaves so many calls with arguments like these to PyTorch, where that is faster than
        checking them; not those with an argument that requires gradients.
        """
        ...
    def recent(self) -> Any:
        """The names of all programs; the one that was used last comes last."""
        ...
    def remove(self, key: Any) -> Any:
        """Removes the program of this name."""
        ...
    def run(self, arguments: Any, keywords: Any = None) -> Any:
        """Run a call, and return the results of the model; `HOST` for a call that is left to PyTorch,
        and `NotImplemented` for one that needs Python: of other shapes than there are programs for,
        or where autograd records, a mode is on, a weight has changed, or calls are observed.
        """
        ...
    def take_ran(self) -> Any:
        """The names of the programs that have run since the last call of this, in the order of their
        last calls.
        """
        ...

@final
class Session:
    """A session: state between calls of the programs of a model. Calls from several threads wait for each other."""
    def fork(self) -> Any:
        """Another session of the model, with a copy of the state."""
        ...
    def reset(self) -> Any:
        """Sets the state to its initial values."""
        ...
    def resize(self, sizes: Any) -> Any:
        """Enlarges the state to these sizes."""
        ...
    def run(self, program: Any, inputs: Any, made: Any) -> Any:
        """Runs the program of this name, or the default one, on tensors: their element types, sizes and elements. Returns
        the value that the graph returns, with what `made` makes of each result in place of tensors.
        """
        ...
    def set_state(self, name: str, value: Any) -> Any:
        """Replaces the state of this name."""
        ...
    @property
    def sizes(self) -> Any:
        """The sizes of the state, by name."""
        ...
    @sizes.setter
    def sizes(self, value: Any) -> None: ...
    @property
    def specs(self) -> Any:
        """The state: names, element types, sizes."""
        ...
    @specs.setter
    def specs(self, value: Any) -> None: ...
    def state(self, name: str) -> Any:
        """A copy of the state of this name: its element type, sizes and elements."""
        ...

@final
class SessionModel:
    """A model with state or several programs, ready for sessions."""
    def __new__(cls, path: Any) -> SessionModel: ...
    @property
    def programs(self) -> Any:
        """The programs: names, inputs, outputs, the names of the state that each reads or writes, and of that which it
        writes.
        """
        ...
    @programs.setter
    def programs(self, value: Any) -> None: ...
    def session(self, sizes: Any) -> Any:
        """A session with state of these sizes."""
        ...
    @property
    def sizes(self) -> Any:
        """The symbols among the sizes of the state: names, least and largest values."""
        ...
    @sizes.setter
    def sizes(self, value: Any) -> None: ...
    @property
    def state(self) -> Any:
        """The state: names, element types, sizes, which may be expressions of symbols."""
        ...
    @state.setter
    def state(self, value: Any) -> None: ...

class ShapeInferenceError(RuntimeError):
    """A call in a graph that fails when it runs: the node, expected and actual arguments."""

@final
class SourceNotes:
    """Records the locations in the user's program where the nodes of one graph are made."""
    def __new__(cls) -> SourceNotes: ...
    def note(self, node: Node) -> Any:
        """Record that `node`, of the same graph each time, is made by the current line of the program."""
        ...

@final
class TextBatch:
    """Sequences that are continued together. Calls from several threads wait for each other."""
    def __len__(self, /) -> int: ...
    def add(self, prompt: Any, max_new_tokens: Any, choice: Any, stop: Any) -> Any:
        """Adds a sequence: its prompt, most new tokens, how they are chosen, tokens that end it. Returns its number."""
        ...
    def remove(self, sequence: Any) -> Any:
        """Ends a sequence; false if there is none."""
        ...
    def step(self) -> Any:
        """Continues each sequence by a token: sequences, tokens, and why a text ends."""
        ...

@final
class TextModel:
    """A language model in a file."""
    def __new__(cls, path: Any, threads: Any) -> TextModel: ...
    def batch(self, rows: Any) -> Any:
        """A batch of that many sequences at once."""
        ...
    @property
    def longest_text(self) -> Any:
        """Most tokens of a prompt."""
        ...
    @longest_text.setter
    def longest_text(self, value: Any) -> None: ...
    @property
    def most_rows(self) -> Any:
        """Most sequences that it continues at once."""
        ...
    @most_rows.setter
    def most_rows(self, value: Any) -> None: ...
    @property
    def stop(self) -> Any:
        """Tokens that end a text."""
        ...
    @stop.setter
    def stop(self, value: Any) -> None: ...
    @property
    def vocabulary(self) -> Any:
        """Number of tokens that there are."""
        ...
    @vocabulary.setter
    def vocabulary(self, value: Any) -> None: ...

@disjoint_base
class TracerCore:
    """Records operations on proxies. The Python class `corsac.fx.proxy.TracerBase` derives from this
    one.
    """
    def __new__(cls, *_args: Any, **_kwargs: Any) -> TracerCore: ...
    def _buffer_name(self, buffer: Any) -> Any:
        """The qualified name of a buffer of the root."""
        ...
    def _call_module(self, module: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The default `call_module`."""
        ...
    def _create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, name: str, type_expr: Any, proxy_factory_fn: Any) -> Any:
        """The default `create_proxy`."""
        ...
    def _index_root(self, root: Any, is_module: bool, code: Any) -> Any:
        """Prepares for a trace of `root`, by a function with this code. Returns the tensors that
        modules have as plain attributes.
        """
        ...
    def _module_name(self, module: torch.nn.Module) -> Any:
        """The qualified name of a module of the root."""
        ...
    def _note_origin(self, node: Node) -> Any:
        """Records the origin of a node."""
        ...
    def _parameter_name(self, parameter: Any) -> Any:
        """The qualified name of a parameter of the root."""
        ...
    def _record(self, fn: Callable[..., Any], args: Any, names: Any, type_expr: Any) -> Any:
        """Calls `fn` and records its operations and its result."""
        ...
    def _succeed(self, node: Node) -> Any:
        """Sets the node that nodes recorded from now on replace; None for no node."""
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
        """Number of calls of each module, by path."""
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
    """Types of the values of a graph, and the cost of computing them."""
    def balance(self, seconds: Any, parts: Any, *, memory: Any = None, bandwidth: Any = None, training: Any = None, only_tensors: Any = False) -> Any:
        """Cuts the calls of the graph into parts, so that the slowest takes as little time as
        possible, with what crosses its borders. Costs have to be known.

        `seconds` has the time of each node, in graph order; `memory` is in bytes for each part,
        `bandwidth` in bytes a second; `training` has the number of copies of the weights that the
        optimizer keeps, and that of microbatches. With `only_tensors`, nothing else crosses.

        Returns the number of the part of each call, in graph order, for each part its seconds and
        its memory, and the bytes that cross each border between two parts.

        Raises `BalanceError` if there is no such cut.
        """
        ...
    def costs(self) -> Any:
        """Costs of the nodes, in order: multiplications, floating-point operations, bytes read, bytes
        written; None for what is unknown.
        """
        ...
    def fallbacks(self) -> Any:
        """Nodes that have no rule: name, target, and the reason."""
        ...
    def lifetimes(self) -> Any:
        """Live ranges of the buffers: bytes, and the names of the first and the last node that need
        each.
        """
        ...
    def peak(self) -> Any:
        """Peak of the bytes of activations held at once, the name of the node with that peak, bytes
        held while each node runs, and the names of nodes whose memory is unknown.
        """
        ...
    def result_bytes(self) -> Any:
        """Bytes of each node's result, in order; None where sizes are unknown."""
        ...
    def shown(self) -> Any:
        """Types of the nodes' values, in order, as text: `float32[2, 3]`."""
        ...
    def tensor_parallel(self, ranks: Any, nodes: Any, weights: Any, *, training: Any, kept: Any) -> Any:
        """The cheapest plan for the graph on several ranks. The ways to make calls on parts have to be
        known (`shards`), and sizes to be numbers.

        `nodes` has, in graph order, the cost of each node on whole tensors, in bytes that could be
        sent meanwhile, whether its value has to be whole on all ranks, and whether it is a view;
        `weights`, for each attribute that is a weight, its name, whether it may be sharded, whether it is trained, the
        dimension along which it has to be, if any, and whether no call may use the whole of it then; `kept` has the costs of a
        byte of a weight and of another value that a rank keeps, in bytes that are sent; if the second is not 0, sums may
        become parts along a dimension before the last.

        A placement is None for a tensor that all ranks have, `"sum"` for one of which each has a
        summand, or the dimension and the sizes of the pieces that are cut among the ranks. Returns, for
        each node in graph order, the values that it uses (index of their node, placements), the
        placements of its result, whether that is replicated, whether ranks compute parts, what is done
        besides the call, and the arguments that are sizes of parts (position or name, path in it);
        then the cost; then views that cannot be sharded in every way, since the ranks do not divide a size
        (node, size).

        Raises `ValueError` if there is no such plan.
        """
        ...
    def uncounted(self) -> Any:
        """Nodes whose cost is unknown: name, target, and the reason."""
        ...
    def unknown(self) -> Any:
        """Nodes whose value is unknown: name, target, and the reason."""
        ...
    def used_weights(self) -> Any:
        """Indices of the parameters and buffers that each node uses, in order."""
        ...
    def values(self, places: Any = None) -> Any:
        """Values of the nodes, in order, with tensors as their metadata. With `places`, those of the
        nodes at these indices; raises `IndexError` for an index out of range.
        """
        ...
    def weights(self) -> Any:
        """Parameters and buffers that the graph names: name, number of elements, bytes, whether it is
        a parameter, whether it is trained.
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
        """The users as a dictionary, independent of the graph."""
        ...
    def get(self, key: Any, default: Any = None) -> Any: ...
    def items(self) -> ItemsView[Node, None]: ...
    def keys(self) -> KeysView[Node]: ...
    def values(self) -> ValuesView[None]: ...

@final
class WrappedFunction:
    """A function that is recorded as one call if it gets a proxy, and is called otherwise.

    It is in place while any thread traces. In a thread that does not trace, it calls the function.
    """
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    @property
    def __wrapped__(self) -> Any: ...
    @__wrapped__.setter
    def __wrapped__(self, value: Any) -> None: ...

def active_traces() -> int:
    """Number of active traces in the process."""
    ...

def alternate_groups(on_device: Any, before: Any, together: Any, *, host_first: Any) -> Any:
    """Groups that alternate between host and device. `on_device` has for each of a number of things
    where it runs, `before` pairs of which the first has to run before the second, `together` lists
    of those that have to run at once. Returns for each group whether it runs on the device, and its
    things.
    """
    ...

def are_native(values: Any) -> Any:
    """Whether all of `values` are strided tensors of PyTorch's own classes on the CPU, of types that
    programs support.
    """
    ...

def assemble_code(wraps: Any, prologue: str, body: str) -> Any:
    """Joins the parts of code: returns source, line map, line that the function starts on."""
    ...

def check_threads_setting() -> Any:
    """Raises `ValueError` where `CORSAC_NUM_THREADS` is no number of threads."""
    ...

def choose_qconfigs(graph: Graph, mapping: Any, scopes: Any, observers: Any) -> Any:
    """Chooses the configuration of each node of `graph`: a number, or None for those that stay as they
    are. `scopes` has the path and the name of the class of the module that made a node, by the name of the node;
    `observers` are paths of modules that have no configuration.
    """
    ...

def compile_graph(graph: Graph, inputs: Any, *, strict: Any = False, precision: Any = "f32") -> Any:
    """Compiles `graph` for tensors like `inputs`, with the weights of its `owning_module`; numbers
    among the inputs are compiled in.

    Raises `CompileError` for what the engine does not support, and `ShapeInferenceError` for a call
    that fails when it runs. Results are new tensors; with `strict`, it is a `CompileError` if one
    would share memory with an input, a weight or another result in PyTorch, and a value that is
    returned twice is one tensor. `precision` is `"f32"`, or `"bf16"` for convolutions and linear
    layers that multiply numbers rounded to bfloat16, where the processor can.
    """
    ...

def computing_again(target: Any) -> Any:
    """Time to recompute the elements of an operator's result: "long", "none", "copied" (as long as
    reading and writing them) or "function".
    """
    ...

def convert_mkldnn(graph: Graph, supported: Any, with_operand: Any, unfit: Any, enter: Any, leave: Any) -> Any:
    """Finds the maximal subgraphs of `graph` that run on oneDNN's layout and puts calls of `enter`
    and `leave` around them.

    `supported` has classes of modules and functions, `with_operand` functions that belong to a
    subgraph if one of their operands does; `unfit` has the modules, by path, that do not, with the
    reason. Returns for each subgraph its nodes and its conversions, and the supported nodes that
    are in none, with the reason.
    """
    ...

def convert_observers(graph: Graph, conversions: Any, left_alone: Any, quantised_inputs: Any, quantised_outputs: Any, operators: Any, floats: Any = None) -> Any:
    """Replaces the observers of `graph`, by path, as `conversions` says; those between nodes called as in
    `left_alone` are removed. `operators` are the functions of new nodes; `floats` is the element type of
    dequantised values, if it is not float32.
    """
    ...

def copy_submodules(source: Any, destination: Any, names: Any, otherwise: Any) -> Any:
    """Registers in `destination` the submodules of `source` with the given qualified names, with
    empty modules as containers on the way. Calls `otherwise` with each name that needs more than
    that, in its turn.
    """
    ...

def draft_code(request: Any, own_output: bool) -> Any:
    """The parts of the code of a graph. With `own_output`, the return statement is left out."""
    ...

def draw_difference(before: Any, before_notes: Any, after: Any, after_notes: Any, style: Any) -> Any:
    """Draws the changes that turn `before` into `after`, as [`draw_graph`] does."""
    ...

def draw_graph(graph: Graph, notes: Any, style: Any) -> Any:
    """Draws `graph`. `notes` are pairs of a node and the facts about it; `style` has the format
    (`svg`, `dot`, `html`), title, overlay, depth to which modules are open, and whether nodes that
    compute sizes are left out.
    """
    ...

def draw_records(title: Any, records: Any, edges: Any) -> Any:
    """Draws boxes of text as SVG, joined by lines from the first to the second of each pair."""
    ...

def effect_pairs(graph: Graph) -> Any:
    """Pairs of nodes of `graph` of which the first has to run before the second, though the second
    does not use it: one of the two writes to what the other uses.
    """
    ...

def explain_compilation(graph: Graph, inputs: Any, fallback: Any = None, *, strict: Any = False) -> Any:
    """The nodes of `graph` that the engine does not support, for tensors like `inputs`, with the
    reasons. `fallback` is as for `propagate_types`, and `strict` as for `compile_graph`.
    """
    ...

def extract_nodes(graph: Graph, nodes: Any, *, tuple_return: Any = False) -> Any:
    """Makes a graph of `nodes`, in this order: values from elsewhere that they use become its inputs,
    and their values that are used elsewhere its outputs. Returns the graph, and the originals of
    its inputs and outputs.

    Inputs come in the order of their first use, but in graph order if all are inputs of the
    program. Raises KeyError if one of the nodes uses a later one.
    """
    ...

def extract_subgraph(graph: Graph, nodes: Any, inputs: Any, outputs: Any) -> Any:
    """Makes a graph that computes `nodes`, in this order, from `inputs` and returns a list of
    `outputs`.

    Raises KeyError if a node uses, or the result has, a value that is neither an input nor computed
    before.
    """
    ...

def find_constants(graph: Graph, skipped: Any, *, budget: Any = None) -> Any:
    """Finds the nodes that do not depend on the inputs of `graph`; calls in `skipped` count as if they
    did. Returns the constant nodes, those calls among them that other nodes use, and as sites those
    calls of constants that have to be made every time, with the reason. Changes nothing.
    """
    ...

def find_linears(graph: Graph, unfit: Any, kinds: Any = None, *, budget: Any = None) -> Any:
    """The calls of `nn.Linear` in `graph` that can be changed, and all of them with the reason why
    they cannot. `unfit` has the layers, by path, that the host cannot change, with the reason. With
    `kinds`, a number by path, the calls come in groups that can be merged; otherwise each is a
    group.
    """
    ...

def find_part_cycle(graph: Graph, parts: Any, *, writes: Any = True) -> Any:
    """Checks that each of `parts`, lists of nodes of `graph`, can run at once: no path leads out of
    one and back into it. Returns None if so, otherwise a message that names a cycle. With `writes`,
    uses of a value that is written to keep the order of the program; otherwise the caller sees to
    that.
    """
    ...

def first_failing(changes: Any, fails: Any) -> Any:
    """Smallest number of changes in 1..=changes for which `fails(number)` is true, given that it is
    true for `changes` and false for 0.
    """
    ...

def fuse_layers(graph: Graph, patterns: Any, make_modules: Any, *, budget: Any = None) -> Any:
    """Fuses the layers of `graph` that match one of `patterns`: `make_modules` gets the matches, makes the fused
    modules and returns the reason where it cannot, for each. The first layer of a pattern stays.
    """
    ...

def fuse_mkldnn(graph: Graph, nodes: Any) -> Any:
    """Fuses the operations on the results of convolutions and linear layers among `nodes`, a subgraph
    of `graph`, into the calls of these layers. Returns all calls of such layers.
    """
    ...

def gather_parts(graph: Graph, parts: Any) -> Any:
    """Makes nodes of each of `parts`, lists of nodes of `graph`, adjacent, where some nodes have to
    run after others that they do not use; changes nothing where none have to. Parts are called
    without regard to writes, so that their positions have to be right.

    Raises RuntimeError if the parts cannot run at once.
    """
    ...

def generate_code(request: Any) -> Any:
    """The code of a graph: source, globals, line map, line that the function starts on."""
    ...

def graph_effects(graph: Graph) -> list[tuple[tuple[list[Node], list[Node], bool, bool, bool, bool, bool], bool, int]]:
    """Effects of each node of `graph` besides its value, in order: the same as `node_effects`, whether
    nodes after it may compute something else than nodes before, whether the layout of arguments in
    memory decides if it shares storage with them, and the number of its alias class, the values
    that it may share storage with: 0 for inputs and attributes.
    """
    ...

def grow_parts(graph: Graph, supported: Any, barriers: Any, items: Any) -> list[list[Node]]:
    """Combines supported nodes into parts that are as large as possible without cycles, and lie
    between one barrier and the next: nothing is moved across those. An item is in the part of its
    container, its first argument, so that no container leaves a part. The caller sees to writes.

    `supported`, `barriers` and `items` have for each node, in graph order, whether it is one.
    Returns the nodes of each part, in graph order, by the first of them.

    Raises `ValueError` if a list is not as long as the graph.
    """
    ...

def has_effects(graph: Graph) -> bool:
    """Whether a call of the program `graph` does anything besides computing its result."""
    ...

def infer_type(target: Any, args: Any, kwargs: Any) -> Any:
    """Type of the result of `target` for these arguments, by the shape rules; tensors as their
    metadata. A string is the name of a tensor method. Returns a tuple of one value, or the reason
    why the type is unknown as text.
    """
    ...

def intercept_call(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """`Module.__call__` while traces are active."""
    ...

def intercept_getattr(module: torch.nn.Module, name: str) -> Any:
    """`Module.__getattr__` while traces are active."""
    ...

def invert(graph: Graph) -> Any:
    """The graph that computes the input of `graph` from its result; or the node that prevents it, and
    the reason. And every step, undone or not.
    """
    ...

def is_view(target: Any) -> bool:
    """Whether `target`, `"torch.ops.aten.t.default"`, only returns a view of its first argument, one tensor."""
    ...

def knows_switches() -> Any:
    """Whether modes are queried by C++ functions, for tests."""
    ...

def knows_tensor_layout() -> Any:
    """Whether the structures of tensors are known, for tests."""
    ...

def makes_tensors_directly() -> Any:
    """Whether results of programs are made in this way, for tests."""
    ...

def map_aggregate(a: Any, fn: Callable[..., Any]) -> Any:
    """Applies `fn` to each value in `a` that is not itself a tuple, list, dictionary or slice. The
    result has the same structure, with immutable lists and dictionaries.
    """
    ...

def map_arg(a: Any, fn: Callable[..., Any]) -> Any:
    """Applies `fn` to each node in `a`, which may be nested tuples, lists, dictionaries and slices.
    The result has the same structure, with immutable lists and dictionaries.
    """
    ...

def match_subgraph(pattern: Graph, graph: Graph, *, match_output: bool, match_placeholder: bool, remove_overlapping_matches: bool, ignore_literals: bool, node_name_match: str, schemas: Any, same_attribute: Any) -> Any:
    """Finds all matches of `pattern` in `graph`.

    `schemas` has the operators in the pattern whose calls may pass the same arguments in different
    ways. `same_attribute(wanted, found)` returns whether an attribute that the pattern reads may
    stand for one that the graph reads.
    """
    ...

def merge_linears(graph: Graph, members: Any, merged: Any, getitem: Any) -> Any:
    """Replaces calls of linear layers with the same input by one call of `merged`, the path of a
    module: `members` are the calls, each with the number of features of its result, and whether its
    result is copied out of the merged one. Returns the new node.
    """
    ...

def mkldnn_table() -> Any:
    """Names that are supported: classes of modules, functions, and functions that need a supported
    operand.
    """
    ...

def named_arguments_of(op: str, target: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """The arguments of a call of a function or method by name, with the names of the operator's
    parameters: those of `aten.batch_norm` and `torch.nn.functional.batch_norm` are the same. Returns
    None where the parameters are not known. Raises TypeError for an argument without a parameter.
    """
    ...

def native_dtypes() -> Any:
    """Names of the element types of PyTorch that programs have."""
    ...

def node_effects(node: Node) -> tuple[list[Node], list[Node], bool, bool, bool, bool, bool]:
    """Effects of `node` besides its value."""
    ...

def not_failing(entries: Any) -> Any:
    """Those of `entries` whose last failing guard holds now. Each entry has `guards`."""
    ...

def note_pure_call(function: Any, arguments: Any, named: Any, is_new: Any, made: Any = None) -> Any:
    """Record that a call of a PyTorch function did nothing but compute results, which are all new
    memory, or none of them is. `made` is its node, if that depends on nothing else: opcode, target,
    whether its first two arguments are exchanged, and whether only the type of the first one is used.
    """
    ...

def observe_calls(start: Any) -> Any:
    """Starts or ends a profile, which sees each call in Python."""
    ...

def observe_values(graph: Graph, request: Any) -> Any:
    """Puts observers on the values of `graph` that are to be quantised. The modules have to be made after
    that.
    """
    ...

def opcode_effect(minor: Any, name: str, arg: Any, jump: Any) -> int:
    """Stack effect of an instruction of CPython 3.``minor``, as ``dis.stack_effect``."""
    ...

def opcode_operand(minor: Any, name: str, word: Any, flags: Any) -> int | None:
    """Argument of an opcode of CPython 3.``minor`` that listings show as ``word``: ``+`` of
    ``BINARY_OP``; for an index of a name, that index with the flag bits below it.

    Returns None where the opcode has no such word.
    """
    ...

def opcode_table(minor: Any) -> list[tuple[int, str, str, int]]:
    """The opcodes of CPython 3.``minor``: number, name, kind of argument, cache units.

    The kind of argument is a word: "none", "count", "const", "name", "local", "free", "jump", ...
    """
    ...

def operator_classes(op: str, target: Any) -> list[str]:
    """The classes of the operator that a call computes, of a function, a method, or a class of modules of `torch.nn`, as
    far as they hold: `"view"`, `"conversion"` of element types, `"type"` where only that of the first argument is read,
    `"dropout"`, and `"strides"` or `"places"` where the result depends on those of elements in memory.
    """
    ...

def operator_named(name: str) -> str:
    """The first name of the operator with this name. Raises KeyError where the table has none."""
    ...

def operator_of(op: str, target: Any) -> tuple[str | None, bool]:
    """The operator that a call of a function or method computes, whatever its spelling, and whether it
    is computed in place: `("add", True)` for `"call_method", "add_"`. None where the table has none.
    """
    ...

def operator_of_module(name: str) -> str | None:
    """The operator that modules of a class of `torch.nn` call."""
    ...

def pad_input_of_linear(graph: Graph, call: Any, pad: Any) -> Any:
    """Appends a column of ones to the input of `call`, a call of a linear layer; `pad` is
    `torch.nn.functional.pad`. Returns the new node.
    """
    ...

def parse_rules(text: str) -> Any:
    """Reads rules from their text form, one on a line."""
    ...

def partition_joint(graph: Graph, values: Any, forward_outputs: Any, fewest_bytes: Any) -> Any:
    """Partitions a joint graph, whose first `forward_outputs` outputs are those of the forward. Nodes
    are numbered in the order of the graph. `fewest_bytes` recomputes everything that is cheap.
    """
    ...

def pass_names() -> list[str]:
    """The names of the passes that `run_pass` runs."""
    ...

def place_by_cost(graph: Graph, sizes: Any, devices: Any, seconds: Any, rate: Any) -> Any:
    """Parts of `graph`, combined as long as that saves time. `seconds` has the time of each node,
    `rate` is in bytes a second between devices.
    """
    ...

def place_by_exchange(graph: Graph, sizes: Any, devices: Any, seconds: Any, rate: Any) -> Any:
    """Parts of `graph` as by size, with calls swapped or moved where that saves time."""
    ...

def place_by_size(graph: Graph, sizes: Any, devices: Any) -> Any:
    """Parts of `graph` that fill one device after the other. `sizes` has the bytes of each node, of
    its value and with its parameters; `devices` the bytes and the number of each device.
    """
    ...

def place_with_embeddings(graph: Graph, sizes: Any, devices: Any, bytes: Any, embeddings: Any) -> Any:
    """Parts of `graph` with embeddings on devices of their own, `bytes` large each, and copies of the
    rest on all of these. `embeddings` has for each node whether it is one.
    """
    ...

def plant_panic(place: Any) -> Any:
    """Plant a panic, for tests: the next compilation (`"compile"`) or run of a program (`"run"`)
    panics, once; None removes it.
    """
    ...

def precision_in_autocast(op: str, target: Any) -> Any:
    """The precision in which autocast lets a call compute: `"lower"`, `"lower products"`, `"single"`, or `"widest"` of
    its inputs;
    `"unknown"` if it may call operators that are cast each in its own way; None if it is not cast.
    """
    ...

def propagate_types(graph: Graph, inputs: Any, fallback: Any = None, *, fill: Any = True, cost: Any = False, shards: Any = False) -> Any:
    """Types of all values of `graph` for `inputs`, in the order of the placeholders.

    `fallback(node, values)` is called for nodes without a rule, with the known values of their
    inputs as a dictionary from node to value; it returns a tuple of one value, or None if the value
    is unknown. With `fill`, metadata is written to the nodes as `ShapeProp` does. With `cost`,
    costs are counted too; with `shards`, the ways to make calls on parts of tensors are found.
    """
    ...

def propose_parts(graph: Graph, supported: Any, *, horizontal: Any = True) -> Any:
    """Combines supported nodes into parts as `torch.fx.passes.infra.partitioner` does: as large as
    possible without cycles. Uses of a value that is written to keep the order of the program.

    `supported` has for each node, in graph order, whether it is. With `horizontal`, nodes without
    connection may be in one part. Returns for each part its number, counting supported nodes from
    the end, its nodes in graph order, and those that joined it since it has the value that they
    take an item from.

    Raises `ValueError` if the list is not as long as the graph.
    """
    ...

def pure_call(function: Any, arguments: Any, named: Any) -> Any:
    """Whether the results of a call are new memory, if it is known to do nothing but compute them;
    None if it is not known.
    """
    ...

def read_config(graph: Graph, text: str, format: Any, allowed: Any, max_nodes: Any) -> Any:
    """Reads a configuration and builds its computation in the empty `graph`.

    Args:
        graph: an empty graph.
        text: the configuration.
        format: "graph", "toml" or "json".
        allowed: names that it may use besides operators of torch: qualified names, with the
            functions or classes behind them.
        max_nodes: the largest number of nodes of the graph.

    Returns the model's name or None; the modules as (path, class, args, kwargs, line); the tensors
    as (path, is a parameter, dtype, shape, initial value, line), where the initial value is a word
    or a list of elements; the inputs as (name, dtype or None, shape or None).
    """
    ...

def register_interception(call: Any, getattr: Any, original_call: Any, original_getattr: Any, functions: Any, methods: Any) -> Any:
    """Registers the objects for the replacements: functions with the code that enters here, functions
    with the original code, and the registries of wrapped functions and methods.
    """
    ...

def register_proxy_support(torch_proxy: Any, torch_attribute: Any, appending_tracer: Any, assert_function: Any, explain_length: Any, explain_conversion: Any) -> Any:
    """Registers the objects that proxies need of the Python half of the package."""
    ...

def register_tracer_classes(base: Any, tracer: Any) -> Any:
    """Registers the classes that define the methods that may be overridden."""
    ...

def rule_from_graphs(name: str, pattern: Graph, replacement: Any, condition: Any = None, build: Any = None, modules: Any = None) -> Any:
    """The rule that replaces the computation of the graph `pattern` by that of `replacement`.
    `condition(match)` decides at each match whether it may. Without `replacement`, `build(match)`
    returns the graph that replaces a match, or None, or a string with the reason why none does.
    `modules` has, for the modules that the pattern calls, the class of `torch.nn` and the settings
    that count.
    """
    ...

def run_pass(name: str, graph: Graph, *, make: Callable[[list[dict[str, Any]]], list[Any]] | None = None, budget: Any = None, **options: Any) -> list[tuple[str, str, str | None, str | None]]:
    """Runs the pass called `name`, with its options: booleans, functions, nodes, a set of strings, or
    an element type. Returns the places that it has considered.

    A pass that needs modules or weights calls `make(requests)` before it changes the graph. A
    request is a dictionary with the node and facts about it; `make` returns for each, in order, the
    qualified names of what it has made, or the reason why it is impossible.
    """
    ...

def run_program(arguments: Any) -> Any:
    """Runs the native program with this command line, the program's name first; returns its exit code."""
    ...

def saturate(graph: Graph, rules: Any, cost: Any, make_types: Any, *, max_nodes: Any, max_seconds: Any, iterations: Any, fast_math: Any = False, budget: Any = None) -> Any:
    """Finds the cheapest equivalent of `graph` by the rules, and changes the graph to it. Without
    `rules`, the laws of algebra apply. `cost` is a dictionary from operators or targets to numbers,
    or `cost(target, types)`, where `make_types(operands, result)` makes `types`.
    """
    ...

def shape_rules() -> Any:
    """The shape rules: family, names, and how arithmetic is counted."""
    ...

def simplification_laws(fast_math: Any) -> Any:
    """The laws of algebra: those that hold to the last bit, or with `fast_math` also those that hold up
    to rounding.
    """
    ...

def sort_breadth_first(graph: Graph, first: Any) -> Any:
    """Sorts the nodes of `graph` into an order in which they can run, breadth first; calls of one of
    `first` come as soon as they can.

    Raises RuntimeError if nodes use each other in a cycle.
    """
    ...

def sort_nodes(graph: Graph, nodes: Any) -> Any:
    """Sorts `nodes` so that each comes after those of them that it uses; of those that could come
    next, the first one in `nodes` does.

    Raises AssertionError if they use each other in a cycle.
    """
    ...

def split_graph(graph: Graph, part_of: Any, names: Any, *, tagged: Any = False, local: Any = ..., companions: Any = None, regions: Any = ..., original_order: Any = False, original_names: Any = False, input_names: Any = True, tuple_return: Any = False) -> Any:
    """Splits `graph` into parts.

    `part_of` has the number of the part of each node, in graph order, or None; `names` the name of
    each part in the calling graph. With `tagged` the graphs are as `split_by_tags` writes them,
    otherwise as `split_module` does. `local` are attributes that parts read themselves,
    `companions` maps nodes to those that have to be passed along with them, and each of `regions`
    is a node that turns a mode on, one that turns it off or None, and the numbers of the parts in
    between.

    Returns the calling graph with its targets, the same for each part, and the order in which the
    parts are called.

    Raises RuntimeError if parts need each other in a cycle, KeyError if a value is used before it
    is defined, AssertionError if `tagged` and a part uses values of a later one.
    """
    ...

def storage_of(own: Any) -> Any:
    """Address of the storage of a strided tensor, which all its views share; valid while the storage
    lives.
    """
    ...

def storages_in(*values: Any) -> Any:
    """Addresses of the storages of the strided tensors in some values."""
    ...

def tensors_in(*values: Any) -> Any:
    """The tensors among the arguments or results of PyTorch's functions, including those in tuples,
    lists and dictionaries.
    """
    ...

def text_candidates(logits: Any, text: str, choice: Any) -> Any:
    """The tokens that may come after `text`, and how probable each is, the most probable one first."""
    ...

def training_parts(graph: Graph, refusals: Any, results: Any) -> tuple[list[list[Node]], list[str | None]]:
    """The largest parts of a graph of ATen operators that compute something, between one call with an
    effect and the next, and for each node, in graph order, the reason why PyTorch runs it, if it is
    a call that PyTorch runs.

    `refusals` has for each node, in graph order, the reason why it cannot be native, if it is known
    already; `results` is the number of leading outputs that the caller gets: views among them share
    memory with their bases.

    Raises `ValueError` if `refusals` is not as long as the graph.
    """
    ...

def unconvert_mkldnn(graph: Graph, starts: Any, ends: Any) -> Any:
    """Removes conversions that `convert_mkldnn` put into `graph`."""
    ...

def unusual_mode(*, autocast: Any = False) -> Any:
    """A mode of this thread that only PyTorch supports; None as a rule. `autocast` says whether autocast is to be on."""
    ...

def user_frame() -> Any:
    """The innermost frame of the user's program."""
    ...

def user_location() -> Any:
    """File, line and function of the current location in the user's program."""
    ...

def weights_of_functions(graph: Graph, observers: Any) -> Any:
    """The weights of functions in `graph` that are observed by one of `observers`, by path, and do not
    depend on the inputs of the program.
    """
    ...

def why_not_split(graph: Graph) -> str | None:
    """The reason why no part of a graph of ATen operators can be native: it writes to what it made."""
    ...

def write_config(graph: Graph, name: str, modules: Any, tensors: Any, inputs: Any, format: Any) -> Any:
    """Writes a configuration from the parts that `read_config` returns, as lists, and the graph."""
    ...

def write_model_file(path: Any, programs: Any, weights: Any, metadata: Any, graphs: Any = ...) -> Any:
    """Writes a model file: programs, each with its name (empty for an only one), its graph in the lossless form, its
    inputs, its state, the symbols among the sizes of both, and the nodes that have to be true; and the tensors that
    they name, with their bytes; other texts for the header; and graphs that control flow calls, by name.
    """
    ...
