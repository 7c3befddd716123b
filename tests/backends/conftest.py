"""Fixtures for tests of compiled training."""

import warnings

import pytest
import torch

import corsac


@pytest.fixture
def native_or_error():
    """Dynamo is reset, random numbers are seeded, and running a graph by PyTorch is an error."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        yield
