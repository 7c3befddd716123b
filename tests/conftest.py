"""Settings of all tests: import path, hypothesis profiles, one thread for PyTorch."""

import os
import sys
from pathlib import Path

import hypothesis
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from kit.first_calls import natively

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, max_examples=40
)
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# No cache of earlier runs is used or left behind.
os.environ.pop("CORSAC_CACHE_DIR", None)

# Many small calls on a few cores: waiting for other threads costs more than they save.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def first_calls_are_native(request, monkeypatch):
    """First calls run compiled programs too, except in tests about recording."""
    if request.node.get_closest_marker("recording") is None:
        natively(monkeypatch)
