"""A process that has used no backend yet, forked for each graph that is tried.

A library's threads do not exist in processes forked from one in which the library was used, so that
these may wait for ever. Therefore one process imports PyTorch and all that is needed, uses none of
it, and is forked for each graph.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
import time
from typing import Any, BinaryIO

import torch

from corsac.backends import _repro_switch
from corsac.fx import Graph, GraphModule
from corsac.fx._module_attributes import _get_attr
from corsac.minifier._case import Case
from corsac.minifier._child import in_child
from corsac.minifier._fault import Fails
from corsac.minifier._trial import Trial, Waiting, ended_trial, try_case

#: Seconds that the process may take for its imports.
_START = 120.0
_PROGRAM = "from corsac.minifier._server import serve; serve()"


class ServerError(Exception):
    """A graph cannot be tried in another process; the message is the reason."""


class Served:
    """Tries graphs in processes forked from one that is started for this."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._fails: Any = None

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph for at most ``seconds``.

        Raises:
            ServerError: the graph or ``fails`` cannot be sent to the process.
        """
        try:
            if self._process is None or self._fails != fails:
                self._start(fails)
            self._send((pickle.dumps(_packed(case)), seconds))
            answer = self._receive(3 * seconds + _START, waiting)
        except ServerError:
            raise
        except Exception as error:
            # Pickling may raise any exception.
            raise ServerError(f"{type(error).__name__}: {error}") from error
        if isinstance(answer, str):
            raise ServerError(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for own in (self._process.stdin, self._process.stdout):
                if own is not None:
                    own.close()
            self._process = None

    def _start(self, fails: Fails) -> None:
        self.close()
        if getattr(fails, "__module__", None) == "__main__":
            raise ServerError("it is defined in the program itself")
        pickled = pickle.dumps(fails)
        environment = _repro_switch.environment_without()
        # Threads would not exist in forked processes.
        environment["OMP_NUM_THREADS"] = environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        environment["PYTHONPATH"] = os.pathsep.join(own or os.getcwd() for own in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        self._fails = fails
        self._send(pickled)

    def _send(self, value: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        _write(self._process.stdin, value)

    def _receive(self, seconds: float, waiting: Waiting | None) -> Trial | str:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while not select.select([self._process.stdout], [], [], 0.5)[0]:
            if waiting is not None:
                waiting()
            if time.monotonic() > deadline:
                self.close()
                raise ServerError(f"no answer after {seconds:.0f} s")
        try:
            answer: Trial | str = _read(self._process.stdout)
        except EOFError as error:
            self.close()
            raise ServerError("the process ended") from error
        return answer


def serve() -> None:
    """Try the graphs that come on stdin, each in a forked process; the main function of the process."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    torch.set_num_threads(1)
    fails, unknown = None, ""
    try:
        fails = pickle.loads(_read(requests))
        if hasattr(fails, "prepare"):
            fails.prepare()
    except Exception as error:
        fails = None
        unknown = f"{type(error).__name__}: {error}"
    while True:
        try:
            packed, seconds = _read(requests)
        except EOFError:
            return
        _write(answers, unknown if fails is None else _answer(packed, fails, seconds))


def _answer(packed: bytes, fails: Fails, seconds: float) -> Trial | str:
    """Result of trying a graph; the reason if it cannot be tried."""

    def work() -> dict[str, Any] | str:
        try:
            case = _unpacked(pickle.loads(packed))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return try_case(case, fails).as_json()

    ended = in_child(work, seconds)
    return ended.answer if isinstance(ended.answer, str) else ended_trial(ended)


def _packed(case: Case) -> tuple[str, dict[str, Any], list[Any]]:
    graph = case.module.graph
    owned = {
        str(node.target): _get_attr(case.module, str(node.target))
        for node in graph.nodes
        if node.op in ("get_attr", "call_module")
    }
    return str(graph), owned, case.inputs


def _unpacked(packed: tuple[str, dict[str, Any], list[Any]]) -> Case:
    text, owned, inputs = packed
    return Case(GraphModule(owned, Graph.parse(text)), inputs)


def _write(stream: BinaryIO | Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO | Any) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    return pickle.loads(stream.read(size))
