"""Fixtures of the tests of quantisation."""

import pytest
import torch


@pytest.fixture
def fbgemm():
    """PyTorch's kernels of fbgemm: with those of the engine "x86", transposed convolutions are wrong."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    torch.manual_seed(0)
    yield
    torch.backends.quantized.engine = before
