"""Containers besides lists and dictionaries, and derived classes: values that a program reads of them are guarded."""

import collections
import types
import warnings

import pytest
import torch

import corsac

pytestmark = pytest.mark.recording

LINEAR = torch.nn.Linear(4, 4).eval()


class OtherList(list):
    """Its items are visible to C, not to Python."""

    def __iter__(self):
        return iter([9, 9])


class OtherSet(set):
    def __iter__(self):
        return iter([9])


class OtherDict(dict):
    def __iter__(self):
        return iter(["c"])

    def values(self):
        return [5]


class Plain(list):
    pass


class Queue(collections.deque):
    pass


class Space(types.SimpleNamespace):
    pass


class Failure(ValueError):
    def __init__(self, items):
        super().__init__(items)


def made():
    table = {"a": 1}
    return types.SimpleNamespace(
        queue=collections.deque([1, 2]),
        queues=collections.deque([[1], [2]]),
        table=table,
        proxy=types.MappingProxyType(table),
        space=types.SimpleNamespace(a=[1]),
        derived=Space(a=1),
        error=ValueError([1]),
        failure=Failure([1]),
        odd=OtherList([1]),
        plain=Plain([1, 2]),
        odd_set=OtherSet([1]),
        odd_dict=OtherDict(a=1),
        own_queue=Queue([1]),
        lists={"a": [1]},
        user_dict=collections.UserDict(a=1),
        user_list=collections.UserList([1]),
        user_text=collections.UserString("ab"),
    )


def change(s, step):
    if step == 3:
        s.queue.append(5)
        s.queues[0].append(4)
        s.table["c"] = 4
        s.space.a.append(3)
        s.derived.a = 4
        s.error.args[0].append(3)
        s.failure.args[0].append(5)
        list.append(s.odd, 5)
        s.plain.append(5)
        s.odd_set.add(5)
        s.odd_dict["b"] = 7
        s.own_queue.append(4)
        s.lists["b"] = [1]
        s.user_dict["b"] = 6
        s.user_list.append(6)
        s.user_text = collections.UserString("abcd")
    elif step == 5:
        s.queue[0] = 9
        s.error = ValueError([1, 2, 3])
        s.lists["b"].append(4)
        s.odd[0] = 8


READS = [
    "2 if 5 in s.queue else 3",
    "len(str(s.queue))",
    "2 if s.queue == collections.deque([1, 2]) else 3",
    "max(s.queue)",
    "sorted(s.queue)[-1]",
    "s.queue.count(5) + 1",
    "sum([sum(own) for own in s.queues])",
    "len(sum(s.queues, []))",
    "len(str(s.proxy))",
    "2 if s.proxy == {'a': 1} else 3",
    "sum(s.proxy.values())",
    "len(dict(s.proxy))",
    "2 if max(s.proxy) == 'c' else 3",
    "len(sorted(s.proxy))",
    "2 if s.space == types.SimpleNamespace(a=[1]) else 3",
    "2 if s.derived == Space(a=1) else 3",
    "2 if [s.space] == [types.SimpleNamespace(a=[1])] else 3",
    "len(str(s.error))",
    "len(repr(s.failure))",
    "len(s.error.args[0])",
    "sum(s.odd)",
    "len(s.odd)",
    "2 if s.odd == [1] else 3",
    "len(str(s.odd))",
    "s.odd[0]",
    "2 if 5 in s.odd else 3",
    "sum(sorted(s.plain))",
    "len([*s.plain])",
    "2 if max(s.plain) == 5 else 3",
    "sum(s.odd_set)",
    "2 if 5 in s.odd_set else 3",
    "2 if s.odd_set == {1} else 3",
    "sum(s.odd_dict.values())",
    "len(list(s.odd_dict))",
    "len(str(s.odd_dict))",
    "len({**s.odd_dict})",
    "2 if s.odd_dict == {'a': 1} else 3",
    "2 if s.lists.keys() == {'a'} else 3",
    "len(s.lists.keys() & {'a', 'b'}) + 1",
    "len(list(s.lists.items())[-1][1])",
    "2 if ('b', [1]) in s.lists.items() else 3",
    "2 if [1] in s.lists.values() else 3",
    "sum(s.own_queue)",
    "sum(s.user_dict.values())",
    "sum(s.user_list) + len(s.user_list)",
    "len(s.user_text)",
]


@pytest.mark.parametrize("read", READS)
def test_what_is_read_is_guarded(read):
    names = {**globals()}
    exec(f"def program(s, x):\n    return LINEAR(x).relu() * ({read})\n", names)
    program = names["program"]
    compiled = corsac.compile(program)
    expected, found = made(), made()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", corsac.HostWarning)
        for step in range(8):
            change(expected, step)
            change(found, step)
            x = torch.full((2, 4), 1.0 + step)
            torch.testing.assert_close(compiled(found, x), program(expected, x))
    if "odd" not in read:
        assert "not compiled" not in str(compiled.explain())
