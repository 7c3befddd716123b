"""Random programs that compute numbers from nested containers by C functions, and change these."""

import bisect
import collections
import contextlib
import functools
import heapq
import itertools
import operator
import random

import torch

KEYS = ("a", "b", "c")
NAMES = {
    "bisect": bisect,
    "chain": itertools.chain,
    "collections": collections,
    "functools": functools,
    "heapq": heapq,
    "islice": itertools.islice,
    "itertools": itertools,
    "operator": operator,
}


class Node:
    def __init__(self, k, items):
        self.k, self.items = k, items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


class Shared:
    level = 1


@contextlib.contextmanager
def counting(s):
    s.n += 1
    try:
        yield s.n
    finally:
        s.n -= 1


def add(*numbers, scale=1):
    return sum(numbers) * scale % 7


def counted(s, count):
    while count > 0:
        s.counts["c"] += 1
        yield count
        count -= 1


class State:
    """The state that a program reads and changes."""

    def __init__(self):
        self.log = []
        self.alias = None
        self.n = 2
        self.ints = [3, 1, 2]
        self.lists = [[1, 2], [1], []]
        self.table = {"a": [1], "b": [2, 3]}
        self.nodes = [Node(3, [1]), Node(1, [2, 2])]
        self.queue = collections.deque([1, 2])
        self.pair = ([4], [])
        self.counts = collections.defaultdict(int)
        self.grown = collections.defaultdict(list)

    @property
    def double(self):
        return self.n * 2 % 9

    def __getattr__(self, name):
        if name == "missing":
            return len(self.ints)
        raise AttributeError(name)

    def step(self, count):
        if len(self.log) > 4:
            self.log.clear()
        self.log.extend(range(count))

    def shown(self):
        nodes = [(own.k, list(own.items)) for own in self.nodes]
        rest = {name: own for name, own in vars(self).items() if name != "nodes"}
        return repr((sorted(rest.items(), key=lambda item: item[0]), nodes, Shared.level))


class Writer:
    """Writes the source of a program."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, depth, *forms):
        """One of the forms; from depth 4 on, only simple ones."""
        forms = [own for own in forms if depth < 4 or not callable(own)]
        own = self.random.choice(forms)
        return own() if callable(own) else own

    def number(self, depth=0):
        """An expression of an integer."""
        more = depth + 1
        return self.pick(
            depth,
            "s.n",
            "1",
            "len(s.lists)",
            "s.queue[-1]",
            "len(s.nodes[0])",
            "s.counts['a']",
            "x.shape[0]",
            "len(x)",
            f"s.nodes[{self.random.randrange(2)}].k",
            lambda: f"sum({self.numbers(more)})",
            lambda: f"max({self.numbers(more)}, default=0)",
            lambda: f"min({self.numbers(more)}, default=0, key=lambda own: -own)",
            lambda: f"len({self.container(more)})",
            lambda: f"len(set({self.numbers(more)}))",
            lambda: f"int(any({self.iterable(more)}))",
            lambda: f"int(all({self.iterable(more)}))",
            lambda: f"len(str({self.container(more)}))",
            lambda: f"len(max({self.iterable(more)}, default=[]))",
            lambda: f"len(max({self.iterable(more)}, key=len, default=[]))",
            lambda: f"len(sum({self.iterable(more)}, []))",
            lambda: f"functools.reduce(operator.add, {self.numbers(more)}, 0)",
            lambda: f"functools.reduce(lambda a, b: a + len(b), {self.iterable(more)}, 0)",
            lambda: f"int([1] in {self.container(more)})",
            lambda: f"{self.container(more)}.count([1])",
            lambda: f"int({self.container(more)} == s.lists)",
            lambda: f"next(iter({self.numbers(more)}), 0)",
            lambda: f"len(next(iter({self.iterable(more)}), []))",
            lambda: f"len(list(zip(*{self.iterable(more)})))",
            lambda: f"bisect.bisect({self.container(more)}, [1])",
            lambda: f"len(collections.Counter({self.numbers(more)}).most_common(1))",
            lambda: f"hash(tuple(map(tuple, {self.iterable(more)}))) % 7",
            lambda: f"operator.itemgetter({self.random.choice(KEYS)!r})(s.counts)",
            lambda: f"len(s.grown[{self.random.choice(KEYS)!r}])",
            lambda: f"({self.number(more)} + {self.number(more)})",
            lambda: f"(2 if {self.number(more)} > {self.number(more)} else 3)",
        )

    def numbers(self, depth=0):
        """An iterable of integers."""
        more = depth + 1
        return self.pick(
            depth,
            "s.ints",
            "s.queue",
            "s.lists[0]",
            "s.nodes[1]",
            "iter(s.ints)",
            "s.table.get('a', [])",
            lambda: f"map(len, {self.iterable(more)})",
            lambda: f"(len(own) for own in {self.iterable(more)})",
            lambda: f"[sum(own) for own in {self.iterable(more)}]",
            lambda: f"map(sum, {self.iterable(more)})",
            lambda: f"map(lambda own: len(own) + s.n, {self.iterable(more)})",
            lambda: f"sorted({self.numbers(more)})",
            lambda: f"filter(None, {self.numbers(more)})",
            lambda: f"chain({self.numbers(more)}, {self.numbers(more)})",
            lambda: f"chain.from_iterable({self.iterable(more)})",
            lambda: f"itertools.accumulate({self.numbers(more)})",
            lambda: f"[key for key, _ in itertools.groupby({self.numbers(more)})]",
            lambda: "map(operator.attrgetter('k'), s.nodes)",
            lambda: "map(operator.attrgetter('k'), sorted(s.nodes, key=operator.attrgetter('k')))",
            lambda: "[own.k for own in sorted(s.nodes, key=lambda own: own.items)]",
            lambda: f"map(operator.add, {self.numbers(more)}, {self.numbers(more)})",
            lambda: f"[a * b for a, b in zip({self.numbers(more)}, {self.numbers(more)})]",
            lambda: f"[at + own for at, own in enumerate({self.numbers(more)})]",
            lambda: f"islice({self.numbers(more)}, 2)",
            lambda: f"list(dict.fromkeys({self.numbers(more)}))",
            lambda: f"dict(enumerate({self.numbers(more)})).values()",
            lambda: f"heapq.nsmallest(2, {self.numbers(more)})",
            lambda: f"[*{self.numbers(more)}, *{self.numbers(more)}]",
        )

    def iterable(self, depth=0):
        """An iterable of lists of integers."""
        more = depth + 1
        return self.pick(
            depth,
            "s.lists",
            "s.pair",
            "s.table.values()",
            "iter(s.lists)",
            "reversed(s.lists)",
            lambda: self.container(more),
            lambda: f"(own for own in {self.iterable(more)})",
            lambda: f"map(list, {self.iterable(more)})",
            lambda: f"map(sorted, {self.iterable(more)})",
            lambda: f"filter(None, {self.iterable(more)})",
            lambda: f"filter(lambda own: own, {self.iterable(more)})",
            lambda: f"map(lambda own: own, {self.iterable(more)})",
            lambda: "map(operator.attrgetter('items'), s.nodes)",
            lambda: f"map(operator.itemgetter(1), list(enumerate({self.iterable(more)})))",
            lambda: f"chain({self.iterable(more)}, {self.iterable(more)})",
            lambda: f"islice({self.iterable(more)}, 2)",
            lambda: "map(s.table.get, ['a', 'b'], [[], []])",
            lambda: "(own.items for own in s.nodes)",
            lambda: f"dict(enumerate({self.iterable(more)})).values()",
        )

    def container(self, depth=0):
        """A list of lists of integers."""
        more = depth + 1
        return self.pick(
            depth,
            "s.lists",
            "[own.items for own in s.nodes]",
            lambda: f"list({self.iterable(more)})",
            lambda: f"sorted({self.iterable(more)})",
            lambda: f"sorted({self.iterable(more)}, key=len)",
            lambda: f"[*{self.iterable(more)}]",
            lambda: f"[own for own in {self.iterable(more)} if own]",
        )

    def change(self):
        """A statement that changes the state."""
        key = self.random.choice(KEYS)
        return self.pick(
            0,
            f"s.n = {self.number(1)} % 9",
            f"s.ints.append({self.number(1)} % 9)",
            f"s.queue.append({self.number(1)} % 9)",
            f"s.lists[-1].append({self.number(2)} % 9)",
            f"s.lists[0] = [{self.number(2)} % 5]",
            f"s.nodes[0].k = {self.number(2)} % 5",
            f"s.nodes[1].items = list({self.numbers(2)})[:3]",
            f"s.table[{key!r}] = list({self.numbers(2)})[:3]",
            f"s.counts[{key!r}] += 1",
            f"s.grown[{key!r}].append({self.number(2)} % 9)",
            "s.lists.sort()",
            "s.lists.sort(key=len)",
            "s.queue.rotate(1)",
            "s.counts.clear()",
            f"s.ints[:] = list({self.numbers(2)})[:4]",
        )

    def block(self):
        """Statements with others in them."""
        key = self.random.choice(KEYS)
        return self.random.choice(
            [
                f"for own in {self.iterable(2)}:\n"
                f"    if len(own) > {self.number(3)}: break\n"
                f"    y = y + len(own)",
                f"try: y = y * s.table[{key!r}][{self.number(3)} % 2]\n"
                f"except (KeyError, IndexError): {self.change()}",
                f"with counting(s) as count: y = y + count + {self.number(2)} % 5",
                f"def inner():\n    nonlocal y\n    y = y + {self.number(2)} % 7\n    {self.change()}\ninner()",
                f"while len(s.ints) > 3: y = y + s.ints.pop()\n{self.change()}",
                f"s.table.pop({key!r}, None)\n{self.change()}",
                f"s.alias = s.lists[0]\n{self.change()}\ny = y + sum(s.alias) % 5",
                f"y = y + Shared.level\nShared.level = ({self.number(2)} + Shared.level) % 4",
                f"y = y + s.double + s.missing\n{self.change()}",
                f"s.lists[0], s.lists[-1] = s.lists[-1], s.lists[0]\n{self.change()}",
                f"y = y + add(s.n, *s.queue, scale={self.number(3)} % 3)",
                f"y = y + sum(counted(s, {self.number(3)} % 4)) % 9",
                f"first, *rest = {self.container(2)} or [[]]\ny = y + len(first) + len(rest)",
                f"match {self.container(2)}:\n"
                f"    case [[a, *_], *_]: y = y + a % 5\n"
                f"    case []: {self.change()}",
                f"y = y + functools.partial(add, scale={self.number(3)} % 3)(*{self.numbers(3)})",
                f"s.step({self.number(2)} % 5)\ny = y + len(s.log) % 3",
                f"assert {self.number(2)} >= 0, {self.number(3)}",
                f"if {self.number(2)} > {self.number(2)}: {self.change()}\nelse: {self.change()}",
            ]
        )

    def source(self):
        lines = ["def program(s, x):", "    y = LINEAR(x).relu()"]
        for _ in range(self.random.choice([1, 1, 2, 3])):
            if self.random.random() < 0.35:
                lines.append(f"    {self.change()}")
            if self.random.random() < 0.5:
                lines += [f"    {own}" for own in self.block().splitlines()]
            lines.append(f"    y = y * ({self.number()} % 11) + x")
        if self.random.random() < 0.3:
            lines.append(f"    {self.change()}")
        return "\n".join([*lines, "    return y", ""])


def changed(state, random_):
    """Change the state as a caller would."""
    match random_.randrange(10):
        case 0:
            state.n = random_.randrange(5)
        case 1:
            random_.choice(state.lists).append(random_.randrange(4))
        case 2:
            state.lists[0] = [1]
        case 3:
            state.table[random_.choice(KEYS)] = [random_.randrange(3)]
        case 4:
            state.table["a"] = state.lists[0]
        case 5:
            state.nodes[0].items.append(7)
        case 6:
            state.nodes.reverse()
        case 7:
            state.pair[0].append(random_.randrange(4))
        case 8:
            state.queue.popleft()
            state.queue.append(random_.randrange(3))
        case 9:
            state.ints[:1] = [random_.randrange(9)]


def program(seed):
    """A function of a state and a tensor, and its source."""
    source = Writer(seed).source()
    torch.manual_seed(0)
    names = {
        **NAMES,
        "Shared": Shared,
        "add": add,
        "counted": counted,
        "counting": counting,
        "LINEAR": torch.nn.Linear(3, 3).eval(),
    }
    exec(compile(source, f"<state {seed}>", "exec"), names)
    return names["program"], source
