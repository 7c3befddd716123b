"""Random models, quantised by this package and by torch.ao."""

import copy
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import qconfig as qconfigs
from torch.ao.quantization import quantize_fx as theirs
from torch.ao.quantization.qconfig_mapping import (
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from torch.testing import assert_close

from corsac.quantization import quantize_fx as ours
from kit.random_models import SHAPE, RandomModel

pytestmark = pytest.mark.filterwarnings("ignore")
CONFIGURATIONS = (
    qconfigs.default_qconfig,
    qconfigs.default_dynamic_qconfig,
    qconfigs.default_per_channel_qconfig,
    qconfigs.default_reuse_input_qconfig,
    None,
)
KINDS = (F.relu, torch.cat, "reshape", torch.add, nn.Linear, F.linear, nn.MaxPool2d, nn.Dropout)
PATHS = ("convs.0", "convs", "linear", "norms.1", "layers.2")


def shares(gm):
    """For each observer, the place of the first one that is the same."""
    calls = gm.graph.find_nodes(op="call_module")
    observers = [gm.get_submodule(call.target) for call in calls if "post_process" in call.target]
    first: dict[int, int] = {}
    return [first.setdefault(id(one), at) for at, one in enumerate(observers)]


def random_mapping(choice):
    mapping = get_default_qconfig_mapping(choice.choice(["fbgemm", "qnnpack"]))
    for kind in choice.sample(KINDS, choice.randrange(4)):
        mapping.set_object_type(kind, choice.choice(CONFIGURATIONS))
    for path in choice.sample(PATHS, choice.randrange(3)):
        mapping.set_module_name(path, choice.choice(CONFIGURATIONS))
    return mapping


def both_prepared(model, mapping, inputs, prepare):
    try:
        expected = getattr(theirs, prepare)(copy.deepcopy(model), mapping, inputs)
    except (AssertionError, LookupError):
        pytest.skip("torch.ao does not prepare this model")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepared = getattr(ours, prepare)(model, mapping, inputs)
    if any("not fused" in str(warning.message) for warning in caught):
        pytest.skip("torch.ao fuses layers that it must not")
    assert prepared.code == expected.code
    assert shares(prepared) == shares(expected)
    return prepared, expected


@pytest.mark.parametrize("seed", range(40))
def test_quantised_random_models(seed):
    choice = random.Random(seed)
    model, inputs = (
        RandomModel(seed, choice.randrange(3, 14)).eval(),
        (torch.randn(SHAPE), torch.randn(SHAPE)),
    )
    mapping = random_mapping(choice)
    prepared, expected = both_prepared(model, mapping, inputs, "prepare_fx")
    with torch.no_grad():
        assert_close(prepared(*inputs), expected(*inputs), rtol=0, atol=0)
        converted = ours.convert_fx(prepared)
        results = converted(*inputs)
        if "per_token" not in converted.code:
            reference = theirs._convert_to_reference_decomposed_fx(expected)
            assert_close(results, reference(*inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(100, 112))
def test_trained_random_models(seed):
    choice = random.Random(seed)
    model, inputs = (
        RandomModel(seed, choice.randrange(3, 14)).train(),
        (torch.randn(SHAPE), torch.randn(SHAPE)),
    )
    mapping = get_default_qat_qconfig_mapping(choice.choice(["fbgemm", "qnnpack"]))
    prepared, _ = both_prepared(model, mapping, inputs, "prepare_qat_fx")
    prepared(*inputs)
    for result in ours.convert_fx(prepared.eval())(*inputs):
        assert torch.isfinite(result).all()
