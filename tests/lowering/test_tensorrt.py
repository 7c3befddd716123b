"""TensorRT runs through ONNX Runtime. Neither the package nor the hardware is present, so the test covers all
but TensorRT itself: the calls of its interface, and the return of results."""

import importlib.machinery
import sys
import types

import pytest
import torch
from torch import nn

import corsac
import corsac.fx
from corsac.lowering import LoweringError

onnxruntime = pytest.importorskip("onnxruntime")

PROVIDER = "TensorrtExecutionProvider"


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()


@pytest.fixture
def asked(monkeypatch):
    """A fake package ``tensorrt``, and an ONNX Runtime that reports the provider; returns the arguments of
    sessions."""
    package = types.ModuleType("tensorrt")
    package.__spec__ = importlib.machinery.ModuleSpec("tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt", package)
    available = onnxruntime.get_available_providers()
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [PROVIDER, *available])
    session, asked = onnxruntime.InferenceSession, []

    def make(model, options=None, providers=(), **others):
        asked.append(list(providers))
        return session(model, options, providers=["CPUExecutionProvider"], **others)

    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    return asked


def test_a_model_is_lowered(model, asked):
    image = torch.randn(2, 3, 8, 8)
    lowered = corsac.lower(model, "tensorrt", image)
    torch.testing.assert_close(lowered(image), model(image), rtol=1e-4, atol=1e-5)
    providers = [(PROVIDER, {}), "CUDAExecutionProvider", "CPUExecutionProvider"]
    assert asked and all(given == providers for given in asked)
    preview = lowered.meta["lowering"]
    assert preview.backend == "tensorrt" and len(preview.parts) == 1 and not preview.host


def test_what_it_cannot_have_stays_on_the_host(asked):
    lowered = corsac.lower(
        corsac.fx.symbolic_trace(lambda x: torch.relu(x) + torch.rand_like(x) * 0),
        "tensorrt",
        torch.ones(3),
    )
    assert "rand_like" in [placed.node for placed in lowered.meta["lowering"].host]
    torch.testing.assert_close(lowered(torch.ones(3)), torch.ones(3))


def test_options_reach_the_provider(model, asked):
    config = {"trt_fp16_enable": True}
    corsac.lower(model, "tensorrt", torch.randn(2, 3, 8, 8), options={"config": config})
    assert asked[0][0] == (PROVIDER, config)


def test_what_is_missing_is_said(model, asked, monkeypatch):
    def refusal():
        with pytest.raises(LoweringError) as caught:
            corsac.lower(model, "tensorrt", torch.randn(2, 3, 8, 8))
        return str(caught.value)

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    assert "ONNX Runtime was built without TensorRT: pip install onnxruntime-gpu" in refusal()
    monkeypatch.delitem(sys.modules, "tensorrt")
    assert "tensorrt is missing: pip install tensorrt" in refusal()
    assert asked == []
