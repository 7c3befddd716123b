"""Calls that are recorded give eager's results; here they give those of the programs that were made of them.

So a test that compiles and calls once sees what was compiled.
"""

import torch
from torch.utils._pytree import tree_leaves

from corsac._native_graph import Compiled
from corsac._recorded_programs import RecordedPrograms
from corsac._recordings import Entry, Recordings


def kinds(value):
    leaves = [own for own in tree_leaves(value) if isinstance(own, torch.Tensor)]
    return [(own.dtype, own.shape, own.requires_grad) for own in leaves]


def natively(monkeypatch):
    """Has calls that are recorded made once more, by what was made of them."""
    record = Recordings.record

    def recorded(self, call, args, kwargs):
        state = torch.get_rng_state()
        result, made = record(self, call, args, kwargs)
        # Steps of training write to buffers, and others to what Python holds.
        if not isinstance(made, Entry) or self._trains or made.changes:
            return result, made
        if made.rewritten is not None and made.rewritten.overwritten:
            return result, made
        # The same random numbers as in the first place, and no others after it.
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        if not made.is_current(call, self._trains):
            # A number that decides has other last bits natively.
            assert made.decides is not None
            torch.set_rng_state(after)
            return result, made
        native = made.run(call)
        assert kinds(native) == kinds(result)
        return native, made

    monkeypatch.setattr(Recordings, "record", recorded)
    # Calls are native, whoever is faster.
    monkeypatch.setattr(Compiled, "measure", lambda self: None)
    # Views that are returned are for the engine, too.
    monkeypatch.setattr(RecordedPrograms, "keeps_views", False)
