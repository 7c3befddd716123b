"""Work that may crash or hang, done in a forked process."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

import torch

from corsac.backends import _repro_switch
from corsac.minifier._fault import Fault, crashed, hung

#: Seconds that a process lives past its limit if nobody is left to end it.
_GRACE = 10
#: Number of bytes read from the end of a process's stderr.
_TAIL = 4096
#: Seconds of one wait for output of a process.
_TURN = 0.5

# Called with each phase of the work, in processes that have set it.
_listener: Callable[[str], None] | None = None


def announce(phase: str) -> None:
    """Announce the phase that begins: ``"compiled"`` before a graph is compiled."""
    if _listener is not None:
        _listener(phase)


def listen(listener: Callable[[str], None] | None) -> None:
    """Set the function to be called with each phase that this process announces."""
    global _listener
    _listener = listener


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of work in a process of its own.

    Attributes:
        answer: the value that the work returned; None if it crashed or hung.
        fault: the crash or hang, if there was one.
        seconds: duration.
        phase: the last phase that was announced.
    """

    answer: Any
    fault: Fault | None
    seconds: float
    phase: str


def can_fork() -> bool:
    """Whether this process can be forked: on POSIX systems only, and not with CUDA initialised."""
    return hasattr(os, "fork") and not torch.cuda.is_initialized()


def in_child(
    work: Callable[[], Any], seconds: float, waiting: Callable[[], None] | None = None
) -> Ended:
    """Run ``work`` in a forked process, which is killed if it takes longer than ``seconds``.

    The process has a single PyTorch thread, since its parent's threads do not exist in it, and its output is
    discarded.

    Args:
        work: returns a value that JSON can hold.
        seconds: limit, counted from the last phase that ``work`` announced.
        waiting: called about twice a second meanwhile.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile() as stderr, tempfile.TemporaryDirectory() as cache:
        pid, reader = _fork(work, stderr.fileno(), cache, seconds)
        lines: list[str] = []
        try:
            in_time = _read(reader, lines, seconds, waiting)
        except BaseException:
            _end(pid)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(reader)
        messages = [json.loads(line) for line in lines]
        phase = next((own["phase"] for own in reversed(messages) if "phase" in own), "")
        answers = [own["answer"] for own in messages if "answer" in own]
        if not in_time or answers:
            _end(pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        taken = time.monotonic() - start
        if answers:
            return Ended(answers[0], None, taken, phase)
        if not in_time:
            return Ended(None, hung(phase, seconds), taken, phase)
        return Ended(None, crashed(status, phase, _tail(stderr)), taken, phase)


def _fork(work: Callable[[], Any], stderr: int, cache: str, seconds: float) -> tuple[int, int]:
    """Start a process that runs ``work``; return its id and the pipe to read its lines from.

    Args:
        work, seconds: as for :func:`in_child`.
        stderr: file descriptor for the process's stderr.
        cache: folder for inductor's compiled code.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The warning is that this process may have threads: for that, hangs are confirmed.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        # A process that is killed leaves half-written files, which no other process must read.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        _be_child(work, writer, stderr, seconds)
    os.close(writer)
    return pid, reader


def _read(
    reader: int, lines: list[str], seconds: float, waiting: Callable[[], None] | None
) -> bool:
    """Append the lines that a process sends to ``lines``; return whether it ended, or returned its result, in time."""
    pending = b""
    deadline = time.monotonic() + seconds
    while True:
        now = time.monotonic()
        if now >= deadline:
            return False
        ready, _, _ = select.select([reader], [], [], min(deadline - now, _TURN))
        # Time in which this process itself was suspended does not count.
        deadline += max(time.monotonic() - now - 2 * _TURN, 0.0)
        if waiting is not None:
            waiting()
        if not ready:
            continue
        data = os.read(reader, 65536)
        if not data:
            return True
        *whole, pending = (pending + data).split(b"\n")
        lines += [line.decode() for line in whole]
        if any(line.startswith('{"answer"') for line in lines):
            return True
        if whole:
            deadline = time.monotonic() + seconds


def _tail(file: BinaryIO) -> str:
    """The end of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    return file.read().decode(errors="replace")


def _end(pid: int) -> None:
    """Kill a process and its children."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _be_child(work: Callable[[], Any], writer: int, stderr: int, seconds: float) -> NoReturn:
    """Run ``work`` and exit; never return to the parent's code."""
    try:
        os.setpgid(0, 0)
        # The alarm ends it if its parent is gone.
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.alarm(int(3 * seconds) + _GRACE)
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, nothing), (1, nothing), (2, stderr)):
            os.dup2(target, number)
        gc.disable()
        torch.set_num_threads(1)
        if "torch._inductor.config" in sys.modules:
            # The pool of compiling processes belongs to the parent.
            sys.modules["torch._inductor.config"].compile_threads = 1
        _repro_switch.remove_from_environment()

        def send(**message: Any) -> None:
            os.write(writer, json.dumps(message).encode() + b"\n")

        listen(lambda phase: send(phase=phase))
        send(answer=work())
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(70)
    os._exit(0)
