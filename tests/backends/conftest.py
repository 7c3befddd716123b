"""What tests of compiled training share."""

import warnings

import pytest
import torch

import corsac


@pytest.fixture
def native_or_error():
    """Dynamo knows nothing, random numbers are the same, and it is an error if PyTorch runs a graph."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        yield
