"""Observers in graph modules, against torch.ao.quantization."""

import copy
import operator
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.nn import intrinsic as their_nni
from torch.ao.quantization import backend_config as their_backends
from torch.ao.quantization import qconfig as their_qconfigs
from torch.ao.quantization import qconfig_mapping as their_mappings
from torch.ao.quantization import quantize_fx as theirs
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig as TheirPrepareCustomConfig
from torch.testing import assert_close

import corsac.fx
from corsac.quantization import backend_config as our_backends
from corsac.quantization import qconfig as our_qconfigs
from corsac.quantization import qconfig_mapping as our_mappings
from corsac.quantization import quantize_fx as ours
from corsac.quantization.fx.custom_config import PrepareCustomConfig
from kit import row
from kit.quantised_models import NAMES, Classifier, by_turns, model_and_inputs

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*reduce_range"
)


def observers_of(gm):
    """The places in the list of the calls that have the same observer, with their kinds."""
    seen = []
    for node in gm.graph.nodes:
        if node.op == "call_module" and node.target.startswith("activation_post_process"):
            seen.append(gm.get_submodule(node.target))
    first = {}
    for at, observer in enumerate(seen):
        first.setdefault(id(observer), at)
    return [
        (first[id(one)], type(one).__name__, one.dtype, one.quant_min, one.quant_max)
        if hasattr(one, "quant_min")
        else (first[id(one)], type(one).__name__, one.dtype)
        for one in seen
    ]


def check(
    model, inputs, mapping, their_mapping, *, qat=False, config=None, their_config=None, **more
):
    prepare = "prepare_qat_fx" if qat else "prepare_fx"
    expected = getattr(theirs, prepare)(
        copy.deepcopy(model), their_mapping, inputs, their_config, **more
    )
    prepared = getattr(ours, prepare)(model, mapping, inputs, config, **more)
    assert prepared.code == expected.code
    assert str(prepared.graph) == str(expected.graph)
    assert observers_of(prepared) == observers_of(expected)
    return prepared, expected


@by_turns(NAMES)
def test_observers_are_those_of_torch(name, own):
    model, inputs = model_and_inputs(name)
    their_mapping = their_mappings.get_default_qconfig_mapping("fbgemm")
    mapping = our_mappings.get_default_qconfig_mapping("fbgemm") if own else their_mapping
    modules = {name: dict(vars(module)) for name, module in model.eval().named_modules()}
    prepared, expected = check(model, inputs, mapping, their_mapping)
    assert_close(prepared(*inputs), expected(*inputs), rtol=0, atol=0)
    after = {name: dict(vars(module)) for name, module in model.named_modules()}
    assert all(after[name].keys() == before.keys() for name, before in modules.items())


@by_turns(name for name in NAMES if name != "Classifier")
def test_training(name, own):
    model, inputs = model_and_inputs(name)
    model.train()
    their_mapping = their_mappings.get_default_qat_qconfig_mapping("fbgemm")
    mapping = our_mappings.get_default_qat_qconfig_mapping("fbgemm") if own else their_mapping
    prepared, expected = check(model, inputs, mapping, their_mapping, qat=True)
    torch.manual_seed(0)
    result = prepared(*inputs)
    torch.manual_seed(0)
    assert_close(result, expected(*inputs))


@pytest.mark.parametrize(
    "name",
    [
        "default_dynamic_qconfig",
        "per_channel_dynamic_qconfig",
        "float16_dynamic_qconfig",
        "float16_static_qconfig",
        "float_qparams_weight_only_qconfig",
        "default_symmetric_qnnpack_qconfig",
    ],
)
def test_other_kinds_of_observers(name):
    mapping = their_mappings.QConfigMapping().set_global(getattr(their_qconfigs, name))
    own = our_mappings.QConfigMapping().set_global(getattr(our_qconfigs, name))
    for model_name in NAMES:
        model, inputs = model_and_inputs(model_name)
        model.eval()
        if name.startswith(("per_channel", "float_qparams")) and "Transpose" in model_name:
            with pytest.raises(AssertionError, match="Per channel weight observer"):
                theirs.prepare_fx(copy.deepcopy(model), mapping, inputs)
            prepared = ours.prepare_fx(copy.deepcopy(model), own, inputs)
            assert_close(prepared(*inputs), model(*inputs), rtol=0, atol=0)
            continue
        check(model, inputs, own, mapping)


def test_modes():
    model, inputs = model_and_inputs("ConvBnReLUModel")
    mapping = their_mappings.get_default_qconfig_mapping("fbgemm")
    with pytest.raises(AssertionError):
        theirs.prepare_fx(copy.deepcopy(model).train(), mapping, inputs)
    with pytest.raises(ours.TrainingModeError, match=r"bn is in training mode.*prepare_qat_fx"):
        ours.prepare_fx(model.train(), mapping, inputs)
    training = their_mappings.get_default_qat_qconfig_mapping("fbgemm")
    check(model.eval(), inputs, training, training, qat=True)
    model.conv.train()
    with pytest.raises(AssertionError):
        theirs.prepare_qat_fx(copy.deepcopy(model), training, inputs)
    with pytest.raises(ours.TrainingModeError, match="conv in training"):
        ours.prepare_qat_fx(model, training, inputs)


def test_dictionaries():
    model, inputs = model_and_inputs("LinearModelWithSubmodule")
    mapping = {"": A, "object_type": [(nn.Linear, B)], "module_name": [("fc", None)]}
    custom = {"preserved_attributes": ["training"]}
    with pytest.warns(FutureWarning, match="qconfig_mapping as a dictionary is deprecated"):
        prepared = ours.prepare_fx(model.eval(), mapping, inputs, custom)
    expected = theirs.prepare_fx(copy.deepcopy(model), mapping, inputs, custom)
    assert prepared.code == expected.code


CONFIGURATIONS = (
    "default_dynamic_qconfig",
    "per_channel_dynamic_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "default_per_channel_qconfig",
    "default_symmetric_qnnpack_qconfig",
    "default_reuse_input_qconfig",
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("qconfig", CONFIGURATIONS)
@pytest.mark.parametrize("name", ["Classifier", "Branches", "FunctionalLinear", "ModelMultipleOps"])
def test_other_configurations(name, qconfig):
    model, inputs = model_and_inputs(name)
    mapping = our_mappings.QConfigMapping().set_global(getattr(our_qconfigs, qconfig))
    their_mapping = their_mappings.QConfigMapping().set_global(getattr(their_qconfigs, qconfig))
    check(model.eval(), inputs, mapping, their_mapping)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("backend", ["qnnpack", "fbgemm", "onednn", "executorch", "tensorrt"])
@pytest.mark.parametrize("name", ["Classifier", "Branches", "LinearBnLeakyReluModel", "ResNetBase"])
def test_other_backends(name, backend):
    model, inputs = model_and_inputs(name)
    model.eval()
    mapping = their_mappings.get_default_qconfig_mapping("qnnpack")
    getter = f"get_{backend}_backend_config"
    their_backend = getattr(their_backends, getter)()
    expected = theirs.prepare_fx(
        copy.deepcopy(model), mapping, inputs, backend_config=their_backend
    )
    for own in (their_backend, getattr(our_backends, getter)()):
        prepared = ours.prepare_fx(model, mapping, inputs, backend_config=own)
        assert prepared.code == expected.code
        assert observers_of(prepared) == observers_of(expected)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.proj = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = F.linear(self.fc(x), self.proj.weight)
        return F.linear(y, self.proj.weight).reshape(-1, 4) + self.proj(x)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = Block(), Block(), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.second(self.first(x)))


A = their_qconfigs.default_qconfig
B = their_qconfigs.default_per_channel_qconfig
PRIORITIES = {
    "type": lambda m: m.set_object_type(nn.Linear, None),
    "function": lambda m: m.set_object_type(F.linear, None),
    "method": lambda m: m.set_object_type("reshape", None),
    "type of a module": lambda m: m.set_object_type(Block, None),
    "name": lambda m: m.set_module_name("first.fc", None),
    "parent": lambda m: m.set_module_name("first", None),
    "child over parent": lambda m: m.set_module_name("first", None).set_module_name("first.fc", A),
    "expression": lambda m: m.set_module_name_regex("second.*", None),
    "first expression": lambda m: m.set_module_name_regex("f.*", None).set_module_name_regex(
        "fi", A
    ),
    "name over expression": lambda m: m.set_module_name_regex("f.*", None).set_module_name(
        "first", A
    ),
    "expression over type": lambda m: m.set_object_type(nn.Linear, None).set_module_name_regex(
        "la", A
    ),
    "type over all": lambda m: m.set_global(None).set_object_type(nn.Linear, A),
    "number": lambda m: m.set_module_name_object_type_order("first", F.linear, 1, None),
    "number of a module": lambda m: m.set_module_name_object_type_order("", nn.Linear, 0, None),
    "number over name": lambda m: m.set_module_name(
        "first", None
    ).set_module_name_object_type_order("first", F.linear, 0, A),
    "several": lambda m: m.set_object_type(nn.Linear, B).set_module_name("second", None),
}


@pytest.mark.parametrize("case", PRIORITIES)
def test_priorities_of_configurations(case):
    mapping = PRIORITIES[case](their_mappings.QConfigMapping().set_global(A))
    check(Blocks().eval(), (torch.randn(2, 4),), mapping, mapping)


def test_all_fused_layers_have_the_configuration_of_the_first():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.relu = nn.Linear(3, 3), nn.Conv1d(3, 3, 1), nn.ReLU()

        def forward(self, x):
            return self.relu(self.b(self.relu(self.a(x)).unsqueeze(-1)))

    model, inputs = Model().eval(), (torch.randn(2, 3),)
    mapping = our_mappings.QConfigMapping().set_global(A).set_object_type(nn.Linear, None)
    prepared = ours.prepare_fx(model, mapping, inputs)
    # PyTorch quantises the linear layer all the same.
    assert "self.a(x)" in prepared.code
    with pytest.raises(LookupError, match="layers that are fused have one configuration"):
        ours.prepare_fx(model, mapping.set_object_type(nn.ReLU, B), inputs)


def test_names_that_match_nothing():
    model, inputs = Blocks().eval(), (torch.randn(2, 4),)
    new = our_mappings.QConfigMapping
    with pytest.warns(UserWarning, match=r"no module 'frist': did you mean first"):
        ours.prepare_fx(model, new().set_module_name("frist", A), inputs)
    with pytest.warns(UserWarning, match=r"no module of the model matches 'third\.\*'"):
        ours.prepare_fx(model, new().set_module_name_regex("third.*", A), inputs)
    mapping = new().set_module_name_object_type_order("first", F.linear, 2, A)
    with pytest.warns(
        UserWarning, match="'first' makes no call number 2 of <built-in function linear>"
    ):
        ours.prepare_fx(model, mapping, inputs)
    config = PrepareCustomConfig().set_non_traceable_module_names(["secnd"])
    with pytest.warns(UserWarning, match="no module 'secnd': did you mean second"):
        ours.prepare_fx(model, new().set_global(A), inputs, config)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Linear", r"the method 'Linear': did you mean the class Linear or the function linear\?"),
        (nn.LSTM, "the class LSTM$"),
        (
            nn.Bilinear,
            r"the class Bilinear: did you mean the function linear or the class Linear\?",
        ),
        (torch.mul, "the function mul"),
        (nn.ReLU(), r"ReLU\(\)"),
    ],
    ids=["string", "class", "near class", "function", "module"],
)
@pytest.mark.parametrize("prepare", [ours.prepare_fx, ours.prepare_qat_fx])
def test_types_that_match_nothing(prepare, kind, said):
    model = Blocks().train(prepare is ours.prepare_qat_fx)
    mapping = our_mappings.QConfigMapping().set_object_type(kind, A)
    with pytest.warns(UserWarning, match=f"object_type: nothing in the model matches {said}"):
        prepare(model, mapping, (torch.randn(2, 4),))


def test_types_that_match_something():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.blocks = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), Blocks()

        def forward(self, x):
            return self.blocks(F.relu(self.norm(self.conv(x))).mean((2, 3)))

    # Also if they are fused, contain others, or are of default mappings, which are for all models.
    mapping = our_mappings.get_default_qconfig_mapping("qnnpack")
    mapping.set_global(default := our_qconfigs.default_qconfig)
    for kind in (
        nn.Conv2d,
        nn.BatchNorm2d,
        F.relu,
        nn.Linear,
        Blocks,
        "mean",
        their_nni.ConvReLU2d,
    ):
        mapping.set_object_type(kind, default)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.prepare_fx(Model().eval(), mapping, (torch.randn(2, 3, 4, 4),))


def test_fused_classes_of_torch_ao():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()).eval()
    mapping = their_mappings.QConfigMapping().set_object_type(their_nni.ConvReLU2d, A)
    check(model, (torch.randn(2, 3, 4, 4),), mapping, mapping)


@pytest.mark.parametrize(
    "config",
    [
        PrepareCustomConfig().set_non_traceable_module_classes([nn.LSTMCell]),
        PrepareCustomConfig().set_standalone_module_class(nn.LSTMCell, None, (), None, None),
        PrepareCustomConfig().set_float_to_observed_mapping(nn.LSTMCell, nn.Linear),
    ],
    ids=["non-traceable", "standalone", "custom"],
)
def test_classes_of_custom_configurations_that_match_nothing(config):
    mapping = our_mappings.QConfigMapping().set_global(A)
    with pytest.warns(UserWarning, match="the model has no module of type LSTMCell"):
        ours.prepare_fx(Blocks().eval(), mapping, (torch.randn(2, 4),), config)


class Inside(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part, self.last = part, nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.part(x))


@row("`prepare_fx`, `prepare_qat_fx` and `fuse_fx` on models that are prepared already")
@pytest.mark.parametrize("around", [lambda part: part, lambda part: Inside(part).eval()])
def test_prepared_models_are_not_prepared_again(around):
    mapping, x = our_mappings.QConfigMapping().set_global(A), torch.randn(2, 4)
    prepared = ours.prepare_fx(Blocks().eval(), mapping, (x,))
    for prepare in (ours.prepare_fx, ours.prepare_qat_fx):
        with pytest.raises(
            ValueError, match=r"prepared already: \w*activation_post_process_0 .*is a"
        ):
            prepare(around(prepared), mapping, (x,))
    with pytest.raises(ValueError, match=r"prepared already: .* or fuse the float model"):
        ours.fuse_fx(around(prepared))
    prepared(x)
    converted = ours.convert_fx(prepared)
    for prepare in (ours.prepare_fx, ours.prepare_qat_fx):
        with pytest.raises(ValueError, match=r"quantised already: \w*quantize_per_tensor_\w+"):
            prepare(around(converted), mapping, (x,))


def test_prepared_parts_that_are_not_traced():
    mapping, x = our_mappings.QConfigMapping().set_global(A), torch.randn(2, 4)
    part = ours.prepare_fx(Blocks().eval(), mapping, (x,))
    config = PrepareCustomConfig().set_non_traceable_module_names(["part"])
    prepared = ours.prepare_fx(Inside(part).eval(), mapping, (x,), config)
    assert "self.part(" in prepared.code
    assert prepared.part.code == part.code


class Looping(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else x


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.inner, self.after = nn.Linear(4, 4), Looping(), nn.Linear(4, 4)

    def forward(self, x):
        return self.after(self.inner(self.before(x)))


def test_modules_that_cannot_be_traced():
    mapping = their_mappings.get_default_qconfig_mapping()
    for their_config in (
        TheirPrepareCustomConfig().set_non_traceable_module_names(["inner"]),
        TheirPrepareCustomConfig().set_non_traceable_module_classes([Looping]),
    ):
        config = PrepareCustomConfig.from_dict(their_config.to_dict())
        check(
            Around().eval(),
            (torch.randn(2, 4),),
            mapping,
            mapping,
            config=config,
            their_config=their_config,
        )


@pytest.mark.parametrize("inputs", [[], [0]])
@pytest.mark.parametrize("outputs", [[], [0]])
def test_standalone_modules(inputs, outputs):
    inner = TheirPrepareCustomConfig().set_input_quantized_indexes(inputs)
    inner.set_output_quantized_indexes(outputs)
    x = (torch.randn(2, 4),)
    mapping = their_mappings.get_default_qconfig_mapping()
    named = TheirPrepareCustomConfig()
    for name in ("first", "second"):
        named.set_standalone_module_name(name, None, x, inner, None)
    prepared, expected = check(
        Blocks().eval(), x, mapping, mapping, config=named, their_config=named
    )
    assert prepared.first.code == expected.first.code
    # The configuration of the call is that of the whole module.
    float_linear = their_mappings.QConfigMapping().set_global(A).set_object_type(nn.Linear, None)
    prepared_by_call, expected_by_call = check(
        Blocks().eval(), x, float_linear, float_linear, config=named, their_config=named
    )
    assert prepared_by_call.first.code == expected_by_call.first.code
    # PyTorch forgets the inputs that are quantised where modules are given by class.
    by_class = TheirPrepareCustomConfig().set_standalone_module_class(Block, None, x, inner, None)
    assert ours.prepare_fx(Blocks().eval(), mapping, x, by_class).code == prepared.code


@pytest.mark.parametrize("number", [0, 1])
def test_inputs_that_are_quantised(number):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x, y):
            return torch.cat([self.a(x), y]) + self.b(F.relu(y))

    config = TheirPrepareCustomConfig().set_input_quantized_indexes([number])
    config.set_output_quantized_indexes([0])
    mapping = their_mappings.get_default_qconfig_mapping()
    x = torch.randn(2, 1, 3, 4, 4)
    check(Model().eval(), tuple(x), mapping, mapping, config=config, their_config=config)


class Scale(nn.Module):
    def forward(self, x):
        return x * 2


class ObservedScale(nn.Module):
    @classmethod
    def from_float(cls, module):
        made = cls()
        made.float_qconfig = module.qconfig
        return made

    def forward(self, x):
        return x * 2


def test_custom_modules():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.scale, self.last = nn.Linear(4, 4), Scale(), nn.Linear(4, 4)

        def forward(self, x):
            return self.last(self.scale(self.fc(x)))

    mapping = their_mappings.get_default_qconfig_mapping()
    config = TheirPrepareCustomConfig().set_float_to_observed_mapping(Scale, ObservedScale)
    model = Model().eval()
    prepared, _ = check(
        model, (torch.randn(2, 4),), mapping, mapping, config=config, their_config=config
    )
    assert type(prepared.scale) is ObservedScale
    assert prepared.scale.float_qconfig is not None
    assert type(model.scale) is Scale


def test_attributes_are_preserved():
    model = Blocks().eval()
    model.classes = ["a"]
    config = PrepareCustomConfig().set_preserved_attributes(["classes"])
    mapping = our_mappings.get_default_qconfig_mapping()
    prepared = ours.prepare_fx(model, mapping, (torch.randn(2, 4),), config)
    assert prepared.classes == ["a"]
    assert copy.deepcopy(prepared).classes == ["a"]


@pytest.mark.parametrize("trace", [corsac.fx.symbolic_trace, torch.fx.symbolic_trace])
def test_graph_modules(trace):
    mapping = their_mappings.QConfigMapping().set_global(A)
    x = torch.randn(2, 4)
    prepared = ours.prepare_fx(trace(Blocks().eval()), mapping, (x,))
    assert (
        prepared.code
        == theirs.prepare_fx(torch.fx.symbolic_trace(Blocks().eval()), mapping, (x,)).code
    )


def test_operators_as_modules():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.ops = torch.ao.nn.quantized.FloatFunctional()

        def forward(self, x):
            return self.ops.add_relu(self.ops.cat([self.fc(x), x]), self.ops.mul_scalar(x, 2)[0])

    mapping = their_mappings.get_default_qconfig_mapping()
    model = Model().eval()
    prepared = ours.prepare_fx(model, mapping, (torch.randn(2, 4),))
    assert isinstance(model.ops, torch.ao.nn.quantized.FloatFunctional)
    assert prepared.code == theirs.prepare_fx(model, mapping, (torch.randn(2, 4),)).code


def test_copies_and_pickles():
    model, inputs = model_and_inputs("Classifier")
    prepared = ours.prepare_fx(model.eval(), our_mappings.get_default_qconfig_mapping(), inputs)
    result = prepared(*inputs)
    for again in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert_close(again(*inputs), result, rtol=0, atol=0)
        assert ours.convert_fx(again).code == ours.convert_fx(prepared).code
    fresh = ours.prepare_fx(model, our_mappings.get_default_qconfig_mapping(), inputs)
    fresh.load_state_dict(prepared.state_dict())
    assert ours.convert_fx(fresh).code == ours.convert_fx(prepared).code


def test_constants_of_operators_that_share_an_observer():
    class Model(nn.Module):
        def forward(self, x, y):
            return operator.add(x, 1), torch.mul(2, y), (x + y).permute(0, 1).unsqueeze(0)

    mapping = their_mappings.get_default_qconfig_mapping()
    check(Model().eval(), (torch.randn(2, 4), torch.randn(2, 4)), mapping, mapping)


def test_bounds_of_a_backend_are_reported():
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_qconfig)
    with pytest.warns(UserWarning, match="_0 stay floats: .* a fixed scale and zero point"):
        prepared = ours.prepare_fx(nn.Sequential(nn.Sigmoid()), mapping, (torch.randn(3),))
    assert "activation_post_process" not in prepared.code


def test_calls_that_stay_floats_have_reasons():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.Sigmoid()

        def forward(self, x):
            return torch.fft.fft(self.act(self.b(self.a(x))))

    mapping = our_mappings.QConfigMapping().set_global(A).set_module_name("b", None)
    with pytest.warns(UserWarning, match="act stay floats"):
        prepared = ours.prepare_fx(Model().eval(), mapping, (torch.randn(2, 4),))
    report = prepared.meta["observer_report"]
    assert {site.node: site.reason for site in report.sites} == {
        "a": None,
        "b": "it has no configuration",
        "act": "its configuration breaks the bounds of the backend",
        "fft_fft": "the backend does not quantise it",
    }
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_dynamic_qconfig)
    prepared = ours.prepare_fx(nn.Sequential(nn.ReLU()), mapping, (torch.randn(2, 4),))
    assert [site.reason for site in prepared.meta["observer_report"].kept] == [
        "the backend does not compute it in the types of its configuration"
    ]


def test_equalisation_needs_its_own_configurations():
    mapping = our_mappings.get_default_qconfig_mapping()
    with pytest.raises(TypeError, match="expected an EqualizationQConfig for conv, got QConfig"):
        ours.prepare_fx(Classifier().eval(), mapping, (), None, mapping)


def test_other_objects_are_type_errors():
    with pytest.raises(TypeError, match="qconfig_mapping: expected a QConfigMapping, got int"):
        ours.prepare_fx(nn.ReLU(), 3, ())
    with pytest.raises(TypeError, match="prepare_custom_config: expected a PrepareCustomConfig"):
        ours.prepare_fx(nn.ReLU(), our_mappings.QConfigMapping(), (), 3)
