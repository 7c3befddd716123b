"""C functions that read their arguments deeper than one level, or that call them: values that they read are
guarded, and changes that they make are made in each call, as in PyTorch."""

import bisect
import collections
import dataclasses
import functools
import heapq
import itertools
import json
import operator
import re
import struct
import types

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import corsac

pytestmark = pytest.mark.recording

# Sums of lists are what is tried here.
# ruff: noqa: RUF017, UP031

LINEAR = torch.nn.Linear(4, 4).eval()
SHARED = [1]


@dataclasses.dataclass
class Point:
    items: list
    k: int


Pair = collections.namedtuple("Pair", "items")


class Node:
    def __init__(self, k, items):
        self.k, self.items = k, items


class Getter:
    def __init__(self, items):
        self.items = items

    def get(self):
        return self.items

    def __getitem__(self, _):
        return self.items


class Bag:
    """An iterable class in Python."""

    def __init__(self, lists):
        self.lists = lists

    def __iter__(self):
        yield from self.lists


class Stepper:
    """An iterator class in Python."""

    def __init__(self, lists):
        self.lists, self.at = lists, 0

    def __iter__(self):
        return Stepper(self.lists)

    def __next__(self):
        if self.at == len(self.lists):
            raise StopIteration
        self.at += 1
        return self.lists[self.at - 1]


class Sequence:
    """Iterable by ``__getitem__`` only."""

    def __init__(self, lists):
        self.lists = lists

    def __getitem__(self, at):
        return self.lists[at]


class Within:
    __contains__ = SHARED.__contains__


class Ordered:
    __lt__ = functools.partial(lambda shared, other: len(shared) > other, SHARED)
    __eq__ = SHARED.count
    __hash__ = None


class Counted:
    __call__ = SHARED.count


class Table(dict):
    pass


class Text(str):
    __slots__ = ()


def made():
    s = types.SimpleNamespace(
        log=[0],
        d={1: 4, 2: 3},
        queue=list(range(60, 0, -1)),
        count=itertools.count(2),
        made=collections.defaultdict(itertools.count(3).__next__),
        grown=collections.defaultdict(list),
        one=[1],
        k=2,
        nodes=[Node(3, [1]), Node(4, [1])],
        pairs=[[1, 5], [2, 4]],
        lists=[[1, 2], [1]],
        named={"a": [1], "b": [1]},
        texts=["1", "2"],
        tuples=[(2, 3)],
        within=([1],),
        nested=[[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]],
        rows=[[0, 1], [1, 1]],
        pads=[[0, 1]],
        point=Point([1], 2),
        pair=Pair([1]),
        ordered=collections.OrderedDict(a=1, b=2, c=3),
        ordered_lists=collections.OrderedDict(a=[1], b=[1]),
        growing_lists=collections.defaultdict(list, b=[1]),
        getters=[Getter([1]), Getter([1, 2])],
    )
    s.bag, s.stepper, s.sequence = Bag(s.lists), Stepper(s.lists), Sequence(s.lists)
    SHARED[:] = [1]
    return s


def change(s):
    s.named["b"].append(3)
    s.within[0].append(3)
    s.ordered_lists["b"].append(3)
    s.growing_lists["b"].append(3)
    s.getters[0].items.append(3)
    s.nodes[1].items.clear()
    s.nodes[0].k = 11
    SHARED.extend([7, 1, 1])
    s.point.items.append(3)
    s.pair.items.append(1)
    s.one[0], s.k, s.d[1] = 7, 5, 1
    s.pairs[0][:] = [8, 1]
    s.lists[1] += [4, 4]
    s.texts[0] = "6"
    s.tuples[0] = (3, 2)
    s.nested[1][2] = 9.0
    s.rows[1][0] = 0
    s.pads[0][1] = 2


def shown(s):
    """The whole state as text."""
    own = {
        name: value for name, value in vars(s).items() if name not in ("bag", "stepper", "sequence")
    }
    for name in ("nodes", "getters"):
        own[name] = [vars(part) for part in own[name]]
    for name in ("made", "grown", "growing_lists"):
        own[name] = dict(own[name])
    return repr(own)


def run(function, call):
    torch.manual_seed(0)
    s, results = made(), []
    compiled = functools.partial(call(function), s)
    with torch.no_grad():
        for step in range(7):
            if step == 3:
                change(s)
            x = torch.randn(2, 4)
            try:
                result = compiled(x)
            except Exception as error:
                result = type(error)
            results.append((result, shown(s)))
    return results


def check(function, recorded=True):
    expected = run(function, lambda own: own)
    compiled = corsac.compile(function)
    got = run(function, lambda _: compiled)
    for step, ((own, state), (other, known)) in enumerate(zip(got, expected, strict=True)):
        if isinstance(other, torch.Tensor):
            assert torch.allclose(own, other), step
        else:
            assert own == other, step
        assert state == known, step
    if recorded:
        assert "not compiled" not in str(compiled.explain()), compiled.explain()


def scaled(x, number):
    return LINEAR(x).relu() * number


def yielded(s):
    yield from s.lists


def filled(s):
    for node in s.nodes:
        yield node.items


# Functions that look into lists of lists, and are recorded.
LOOKING = {
    "any of a generator": lambda s, x: scaled(x, 2 if any(own for own in s.lists) else 3),
    "all of a list": lambda s, x: scaled(x, 2 if all(s.lists) else 3),
    "all of attributes": lambda s, x: scaled(x, 2 if all(own.items for own in s.nodes) else 3),
    "all of a function": lambda s, x: scaled(x, 2 if all(filled(s)) else 3),
    "sum of a generator": lambda s, x: scaled(x, len(sum((own for own in s.lists), []))),
    "sum of a list": lambda s, x: scaled(x, len(sum(s.lists, []))),
    "sum of a map": lambda s, x: scaled(x, len(sum((own.items for own in s.nodes), []))),
    "sum of results": lambda s, x: scaled(x, len(sum(map(lambda own: own.items, s.nodes), []))),
    "sum of a bag": lambda s, x: scaled(x, len(sum(s.bag, []))),
    "sum of an iterator": lambda s, x: scaled(x, len(sum(s.stepper, []))),
    "sum of a sequence": lambda s, x: scaled(x, len(sum(s.sequence, []))),
    "sum of a chain": lambda s, x: scaled(x, len(sum(itertools.chain(s.lists, [[1]]), []))),
    "sum of a part": lambda s, x: scaled(x, len(sum(itertools.islice(s.lists, 1, 2), []))),
    "max of a generator": lambda s, x: scaled(x, len(max(own for own in s.lists))),
    "max by length": lambda s, x: scaled(x, len(max((own for own in s.lists), key=len))),
    "max by items": lambda s, x: scaled(x, max(s.nodes, key=lambda own: own.items).k),
    "sorted by items": lambda s, x: scaled(x, sorted(s.nodes, key=lambda own: own.items)[0].k),
    "sorted by length": lambda s, x: scaled(x, len(sorted(s.lists, key=len)[0])),
    "sorted": lambda s, x: scaled(x, len(sorted(s.lists)[0])),
    "sorted by entries": lambda s, x: scaled(x, sorted([1, 2], key=s.d.__getitem__)[0]),
    "max by entries": lambda s, x: scaled(x, max(s.d, key=s.d.get)),
    "map of len": lambda s, x: scaled(x, sum(map(len, (own for own in s.lists)))),
    "map of len in a loop": lambda s, x: scaled(x, sum([own for own in map(len, yielded(s))])),
    "map of len of a bag": lambda s, x: scaled(x, sum([own for own in map(len, s.bag)])),
    "map of len of an iterator": lambda s, x: scaled(x, sum([own for own in map(len, s.stepper)])),
    "map of len of a sequence": lambda s, x: scaled(x, sum([own for own in map(len, s.sequence)])),
    "map of a map": lambda s, x: scaled(
        x, sum(map(len, map(max, zip(s.lists, s.lists, strict=True))))
    ),
    "map of an iterator": lambda s, x: scaled(x, sum(map(len, iter(s.lists)))),
    "map backwards": lambda s, x: scaled(x, sum(map(len, reversed(s.lists)))),
    "map of values": lambda s, x: scaled(x, sum(map(len, s.named.values()))),
    "map of items": lambda s, x: scaled(x, sum(len(own) for _, own in map(tuple, s.named.items()))),
    "map of pairs": lambda s, x: scaled(x, max(list(map(max, enumerate(s.lists)))[1], key=str)),
    "map of entries": lambda s, x: scaled(x, sum(map(s.d.get, [1, 2]))),
    "map of tuple": lambda s, x: scaled(x, len(list(map(tuple, s.lists))[1])),
    "map of list": lambda s, x: scaled(x, len(list(map(list, s.lists))[1])),
    "map of set": lambda s, x: scaled(x, len(set(map(tuple, s.lists)))),
    "map of sorted": lambda s, x: scaled(x, list(map(sorted, s.lists))[1][-1]),
    "map of int": lambda s, x: scaled(x, sum(map(int, s.texts))),
    "map of str": lambda s, x: scaled(x, len("".join(map(str, s.lists)))),
    "map of format": lambda s, x: scaled(x, len(",".join(map("{}".format, s.lists)))),
    "map of repr": lambda s, x: scaled(x, len(",".join(map(repr, s.lists)))),
    "map of eq": lambda s, x: scaled(x, 1 + sum(map(operator.eq, s.lists, [[1, 2], [1]]))),
    "a partial in a map": lambda s, x: scaled(
        x, 1 + sum(map(functools.partial(operator.contains, s.lists), [[1]]))
    ),
    "elements of a map": lambda s, x: scaled(x, len(sum(map(s.lists.__getitem__, [1]), []))),
    "a method in a map": lambda s, x: scaled(x, 1 + max(map(s.lists.count, [[1]]))),
    "filter of nothing": lambda s, x: scaled(
        x, 1 + len(list(filter(None, (own.items for own in s.nodes))))
    ),
    "filter by items": lambda s, x: scaled(
        x, 1 + len(list(filter(lambda own: own.items, s.nodes)))
    ),
    "filter by entries": lambda s, x: scaled(x, len(list(filter(s.d.get, [1, 2])))),
    "a star": lambda s, x: scaled(x, len(list(zip(*s.lists, strict=False)))),
    "a chain": lambda s, x: scaled(x, len(list(itertools.chain(*s.lists)))),
    "a product": lambda s, x: scaled(x, len(list(itertools.product(*s.lists)))),
    "a union": lambda s, x: scaled(x, 1 + len(set().union(*s.lists))),
    "a star of a generator": lambda s, x: scaled(x, len(max(*(own for own in s.lists)))),
    "a star of a map": lambda s, x: scaled(x, max(*map(len, s.lists))),
    "a star of a set": lambda s, x: scaled(x, max(*{len(own) for own in s.lists}, 1)),
    "starmap": lambda s, x: scaled(x, sum(itertools.starmap(lambda a, b: a * b, s.pairs))),
    "starmap of pow": lambda s, x: scaled(x, sum(itertools.starmap(pow, s.tuples))),
    "compress": lambda s, x: scaled(
        x, sum(itertools.compress([1, 2], [own.items for own in s.nodes]))
    ),
    "a dictionary of pairs": lambda s, x: scaled(x, dict(s.pairs)[2] + len(dict(s.pairs))),
    "a dictionary of values": lambda s, x: scaled(x, sum(dict(s.pairs).values())),
    "a dictionary of a class": lambda s, x: scaled(x, sum(Table(s.pairs).values())),
    "a text of a class": lambda s, x: scaled(x, len(Text(s.lists))),
    "an ordered one": lambda s, x: scaled(x, sum(collections.OrderedDict(s.pairs).values())),
    "a dictionary of a map": lambda s, x: scaled(
        x, dict(map(lambda own: (len(own), 2), s.lists)).get(1, 5)
    ),
    "an update": lambda s, x: (own := {}, own.update(s.pairs), scaled(x, sum(own.values())))[2],
    "reduce": lambda s, x: scaled(x, len(functools.reduce(operator.add, s.lists))),
    "reduce of a generator": lambda s, x: scaled(
        x, len(functools.reduce(operator.concat, (own for own in s.lists)))
    ),
    "a hash": lambda s, x: scaled(
        x, 2 if hash(tuple(map(tuple, s.lists))) == hash(((1, 2), (1,))) else 3
    ),
    "unpacked": lambda s, x: scaled(x, max(b for _, b in [map(len, s.lists)])),
    "in a tuple": lambda s, x: scaled(x, 2 if s.within == ([1],) else 3),
    "in": lambda s, x: scaled(x, 2 if [1] in s.lists else 3),
    "in a generator": lambda s, x: scaled(x, 2 if [1] in (own for own in s.lists) else 3),
    "in a bag": lambda s, x: scaled(x, 2 if [1] in s.bag else 3),
    "equal": lambda s, x: scaled(x, 2 if s.lists == [[1, 2], [1]] else 3),
    "counted": lambda s, x: scaled(x, 2 if s.lists.count([1]) else 3),
    "found": lambda s, x: scaled(x, 1 + [[0], [1], [1, 4, 4]].index(s.lists[1])),
    "a text": lambda s, x: scaled(x, len(f"{s.lists}") + len("%s" % (s.lists,))),
    "a sorted copy": lambda s, x: (own := list(s.lists), own.sort(), scaled(x, len(own[0])))[2],
    "an equal one is removed": lambda s, x: (
        own := [[1], *s.lists],
        own.remove([1]),
        scaled(x, len(own) + (own[-1] == [1])),
    )[2],
    "an array": lambda s, x: scaled(x, float(np.sum(s.nested))),
    "a tensor": lambda s, x: LINEAR(x) * torch.tensor(s.nested),
    "an index": lambda s, x: LINEAR(x)[s.rows] * 2,
    "a part of it": lambda s, x: LINEAR(x)[s.rows[1]] * 2,
    "a padding": lambda s, x: F.pad(LINEAR(x), s.pads[0]) * 2,
    "json": lambda s, x: scaled(x, len(json.dumps(s.lists))),
    "equal points": lambda s, x: scaled(x, 2 if s.point == Point([1], 2) else 3),
    "equal pairs": lambda s, x: scaled(x, 2 if s.pair == ([1],) else 3),
    "fields": lambda s, x: scaled(x, len(dataclasses.asdict(s.point)["items"])),
    "an item": lambda s, x: scaled(x, operator.itemgetter(0)(s.one)),
    "an attribute": lambda s, x: scaled(x, operator.attrgetter("k")(s)),
    "a method by its name": lambda s, x: scaled(
        x, 1 + operator.methodcaller("count", 4)(s.lists[1])
    ),
    "sorted by item": lambda s, x: scaled(x, sorted(s.pairs, key=operator.itemgetter(1))[0][0]),
    "max by attribute": lambda s, x: scaled(x, max(s.nodes, key=operator.attrgetter("k")).k),
    "max by a list": lambda s, x: scaled(x, max(s.nodes, key=operator.attrgetter("items")).k),
    "max of several": lambda s, x: scaled(x, max(*s.nodes, key=operator.attrgetter("k")).k),
    "map of attributes": lambda s, x: scaled(x, sum(map(operator.attrgetter("k"), s.nodes))),
    "map of lists": lambda s, x: scaled(
        x, len(sum(map(operator.attrgetter("items"), s.nodes), []))
    ),
    "map of second items": lambda s, x: scaled(x, sum(map(operator.itemgetter(1), s.pairs))),
    "map of lists in a loop": lambda s, x: scaled(
        x, len([own for own in map(operator.itemgetter(1), enumerate(s.lists)) if len(own) > 1])
    ),
    "a map of a map of items": lambda s, x: scaled(
        x,
        len(list(map(list, map(operator.itemgetter(1), list(enumerate(filled(s))))))[1]) + 1,
    ),
    "lengths of results of a method": lambda s, x: scaled(
        x, sum([own for own in map(len, map(operator.methodcaller("get"), s.getters))])
    ),
    "lengths of what a dictionary gives": lambda s, x: scaled(
        x, sum([own for own in map(len, map(operator.methodcaller("get", "b"), [s.named]))])
    ),
    "lengths of what a list gives": lambda s, x: scaled(
        x, sum([own for own in map(len, map(operator.methodcaller("__getitem__", 1), [s.lists]))])
    ),
    "lengths of items of an ordered one": lambda s, x: scaled(
        x, sum([own for own in map(len, map(operator.itemgetter("b"), [s.ordered_lists]))])
    ),
    "lengths of items of a growing one": lambda s, x: scaled(
        x, sum([own for own in map(len, map(operator.itemgetter("b"), [s.growing_lists]))])
    ),
    "lengths of items of a proxy": lambda s, x: scaled(
        x,
        sum(
            [
                own
                for own in map(
                    len, map(operator.itemgetter("b"), [types.MappingProxyType(s.named)])
                )
            ]
        ),
    ),
    "lengths of items of objects": lambda s, x: scaled(
        x, sum([own for own in map(len, map(operator.itemgetter(0), s.getters))])
    ),
    "the most common": lambda s, x: scaled(
        x, collections.Counter(map(len, s.lists)).most_common(1)[0][1]
    ),
    "accumulated": lambda s, x: scaled(x, len(list(itertools.accumulate(s.lists))[-1])),
    "accumulated by": lambda s, x: scaled(
        x, len(list(itertools.accumulate(s.lists, operator.concat))[-1])
    ),
    "groups": lambda s, x: scaled(x, len([key for key, _ in itertools.groupby(s.lists)])),
    "groups by length": lambda s, x: scaled(
        x, sum(key * len(list(own)) for key, own in itertools.groupby(s.lists, key=len))
    ),
    "a flat list": lambda s, x: scaled(x, len(list(itertools.chain.from_iterable(s.lists)))),
    "a flat list of a generator": lambda s, x: scaled(
        x, len(list(itertools.chain.from_iterable(own for own in s.lists)))
    ),
    "a sum of a flat list": lambda s, x: scaled(
        x, sum(itertools.chain.from_iterable(own for own in s.lists))
    ),
    "compared by a function": lambda s, x: scaled(
        x, len(sorted(s.lists, key=functools.cmp_to_key(lambda a, b: len(a) - len(b)))[0])
    ),
    "a heap": lambda s, x: (
        own := [[1, 3]],
        heapq.heappush(own, s.lists[1]),
        scaled(x, len(own[0])),
    )[2],
    "bisected": lambda s, x: scaled(x, 1 + bisect.bisect([[1], [1, 2]], s.lists[1])),
    "variables": lambda s, x: scaled(x, len(vars(s)["lists"][1])),
    "bytes": lambda s, x: scaled(x, struct.unpack("B", struct.pack("B", s.k))[0]),
    "a pattern": lambda s, x: scaled(x, len(re.compile("a").sub(lambda _: "z" * s.k, "banana"))),
}
NOT_RECORDED = {"json", "found", "an index", "a part of it", "map of lists in a loop"}


@pytest.mark.parametrize("name", LOOKING)
def test_what_c_looks_into(name):
    check(LOOKING[name], recorded=name not in NOT_RECORDED)


def appends_by_key(s, x):
    sorted([1], key=s.log.append)
    return scaled(x, len(s.log))


def appends_by_key_of_max(s, x):
    max([1, 2], key=s.queue.remove)
    return scaled(x, len(s.queue))


def pops_by_key(s, x):
    number = min([0], key=s.queue.pop)
    return scaled(x, len(s.queue) + number)


def appends_by_sort(s, x):
    own = [1]
    own.sort(key=s.log.append)
    return scaled(x, len(s.log))


def appends_by_operator(s, x):
    operator.call(s.log.append, 1)
    return scaled(x, len(s.log))


def appends_by_partial(s, x):
    functools.partial(s.log.append, 1)()
    return scaled(x, len(s.log))


def appends_by_method(s, x):
    types.MethodType(list.append, s.log)(1)
    return scaled(x, len(s.log))


def appends_by_map(s, x):
    list(map(s.log.append, [1, 2]))
    return scaled(x, len(s.log))


def appends_by_star(s, x):
    s.log.extend(*[[1, 2]])
    s.log.append(*(own for own in [3]))
    return scaled(x, len(s.log))


def sets_by_reduce(s, x):
    functools.reduce(s.d.__setitem__, [len(s.d) + 10, 2])
    return scaled(x, len(s.d))


def sets_by_key(s, x):
    sorted([1], key=functools.partial(s.d.__setitem__, len(s.d)))
    return scaled(x, len(s.d))


def pops_by_iterator(s, x):
    taken = sum(1 for _ in zip(range(2), iter(s.queue.pop, 0), strict=False))
    return scaled(x, taken * len(s.queue))


def is_made(s, x):
    return scaled(x, s.made[f"a{len(s.made)}"])


def is_made_and_deleted(s, x):
    number = s.made["a"]
    del s.made["a"]
    return scaled(x, number)


def is_made_of_count(s, x):
    return scaled(x, collections.defaultdict(s.count.__next__)["a"])


def grows(s, x):
    s.grown["a"].append(1)
    return scaled(x, len(s.grown["a"]))


def is_next(s, x):
    return scaled(x, next(map(next, [s.count])))


def is_next_by_key(s, x):
    sorted([s.count], key=next)
    return scaled(x, next(s.count))


def attributes(s, x):
    return scaled(x, sum(map(getattr, s.nodes, ["k", "k"])))


def identities(s, x):
    return scaled(x, 1 + sum(map(operator.is_, s.lists, [s.lists[0], s.k])))


def rotates(s, x):
    s.ordered.move_to_end(next(iter(s.ordered)))
    return scaled(x, next(iter(s.ordered.values())))


def orders_anew(s, x):
    s.d[1] = s.d.pop(1)
    return scaled(x, next(iter(s.d)))


def is_within(_, x):
    return scaled(x, 2 if 7 in Within() else 3)


def is_less(_, x):
    return scaled(x, 2 if min(Ordered(), 3) == 3 else 3)


def counts(_, x):
    return scaled(x, 1 + Counted()(1))


def worklist(s, x):
    work, total = [s.lists[0]], 0
    for length in map(len, work):
        total += length
        if len(work) == 1:
            work.append(s.lists[1])
    return scaled(x, total)


CALLING = [
    appends_by_key,
    appends_by_key_of_max,
    pops_by_key,
    appends_by_sort,
    appends_by_operator,
    appends_by_partial,
    appends_by_method,
    appends_by_map,
    appends_by_star,
    sets_by_reduce,
    sets_by_key,
    pops_by_iterator,
    is_made,
    is_made_and_deleted,
    is_made_of_count,
    grows,
    is_next,
    is_next_by_key,
    attributes,
    identities,
    rotates,
    orders_anew,
    is_within,
    is_less,
    counts,
    worklist,
]
RECORDED = {
    appends_by_operator,
    appends_by_partial,
    appends_by_method,
    grows,
    rotates,
    worklist,
}


@pytest.mark.parametrize("function", CALLING, ids=lambda own: own.__name__)
def test_what_c_calls(function):
    check(function, recorded=function in RECORDED)
