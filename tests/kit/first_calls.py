"""Calls that are recorded return eager's results; here they return those of the compiled programs.

A test that compiles and calls once therefore tests the compiled program.
"""

import torch
from torch.utils._pytree import tree_leaves

from corsac._capture.recordings import Entry, Recordings
from corsac._compile.recorded_programs import RecordedPrograms
from corsac._engine.native_graph import Compiled


def kinds(value):
    leaves = [own for own in tree_leaves(value) if isinstance(own, torch.Tensor)]
    return [(own.dtype, own.shape, own.requires_grad) for own in leaves]


def natively(monkeypatch):
    """Run recorded calls once more, by the compiled program."""
    record = Recordings.record

    def recorded(self, call, args, kwargs):
        state = torch.get_rng_state()
        result, made = record(self, call, args, kwargs)
        # Training steps write to buffers, and others to Python state.
        if not isinstance(made, Entry) or self._trains or made.changes:
            return result, made
        if made.rewritten is not None and made.rewritten.overwritten:
            return result, made
        # The same random numbers as in the first run, and no others after it.
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        if not made.is_current(call, self._trains):
            # A number that decides differs in its last bits natively.
            assert made.decides is not None
            torch.set_rng_state(after)
            return result, made
        native = made.run(call)
        assert kinds(native) == kinds(result)
        return native, made

    monkeypatch.setattr(Recordings, "record", recorded)
    # Calls are native, whichever is faster.
    monkeypatch.setattr(Compiled, "measure", lambda self: None)
    # Returned views are computed by the engine too.
    monkeypatch.setattr(RecordedPrograms, "keeps_views", False)
