"""Reports on calibrated models, against torch.ao.quantization."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.quantization import quantize_fx as their_fx
from torch.ao.quantization.fx._model_report import (
    detector as their_detectors,
)
from torch.ao.quantization.fx._model_report import (
    model_report as their_report,
)
from torch.ao.quantization.fx._model_report import (
    model_report_observer as their_observers,
)
from torch.ao.quantization.fx._model_report import (
    model_report_visualizer as their_visualizer,
)
from torch.testing import assert_close

import corsac.quantization as ours
from corsac.quantization import quantize_fx as our_fx
from corsac.quantization.fx._model_report import (
    detector as our_detectors,
)
from corsac.quantization.fx._model_report import (
    model_report as our_report,
)
from corsac.quantization.fx._model_report import (
    model_report_observer as our_observers,
)
from corsac.quantization.fx._model_report import (
    model_report_visualizer as our_visualizer,
)
from kit.quantised_models import batches, model_and_inputs

pytestmark = pytest.mark.filterwarnings("ignore")

MODELS = [
    "ConvBnReLUModel",
    "ConvModel",
    "LinearReluModel",
    "NestedModel",
    "ResNetBase",
    "ConvReluAddModel",
]


def detectors(package, *kinds):
    made = {
        "dynamic": lambda: package.DynamicStaticDetector(tolerance=0.6),
        "equalization": lambda: package.InputWeightEqualizationDetector(0.5),
        "outlier": lambda: package.OutlierDetector(1.4, 0.9, 0.9),
        "per_channel": lambda: package.PerChannelDetector("fbgemm"),
    }
    return [made[kind]() for kind in kinds]


ALL = ("dynamic", "equalization", "outlier", "per_channel")


def reports(name, kinds, qconfig="default_qconfig", qat=False):
    """The reporters of torch.ao and of corsac with calibrated models."""
    model, inputs = model_and_inputs(name)
    made = []
    for package, fx, detector, report in (
        (theirs, their_fx, their_detectors, their_report),
        (ours, our_fx, our_detectors, our_report),
    ):
        mapping = package.QConfigMapping().set_global(getattr(package, qconfig))
        prepare = fx.prepare_qat_fx if qat else fx.prepare_fx
        prepared = prepare(copy.deepcopy(model).train(qat), mapping, inputs)
        reporter = report.ModelReport(prepared, detectors(detector, *kinds))
        watched = reporter.prepare_detailed_calibration()
        assert watched is prepared
        for batch in batches(inputs, 4):
            watched(*batch)
        made.append((reporter, watched))
    return made


def plain(value):
    """A value, of a tensor its type and numbers."""
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


def values(found):
    """Facts as numbers and words."""
    facts = {
        path: {name: plain(value) for name, value in own.items()} for path, own in found.items()
    }
    for own in facts.values():
        # A truth value of one element there.
        own.update(
            {
                name: value[1]
                for name, value in own.items()
                if name == "dynamic_recommended" and isinstance(value, tuple)
            }
        )
    return facts


@pytest.mark.parametrize("kinds", [(kind,) for kind in ALL] + [ALL], ids="-".join)
@pytest.mark.parametrize("name", MODELS)
def test_reports_have_the_numbers_of_torch(name, kinds):
    (expected, theirs_watched), (reporter, watched) = reports(name, kinds)
    if len(kinds) == 1:
        assert watched.code == theirs_watched.code
    assert reporter.get_desired_reports_names() == expected.get_desired_reports_names()
    assert reporter.get_observers_of_interest() == expected.get_observers_of_interest()
    found, wanted = (one.generate_model_report(False) for one in (reporter, expected))
    assert found.keys() == wanted.keys()
    for report, (text, facts) in found.items():
        assert text
        assert values(facts) == values(wanted[report][1])


@pytest.mark.parametrize("name", MODELS)
def test_observers_are_removed(name):
    _, (reporter, watched) = reports(name, ALL)
    model, inputs = model_and_inputs(name)
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    plain = our_fx.prepare_fx(model.eval(), mapping, inputs)
    assert watched.code != plain.code
    reporter.generate_model_report(True)
    assert watched.code == plain.code
    assert [*dict(watched.named_modules())] == [*dict(plain.named_modules())]
    with pytest.raises(RuntimeError, match="removed with an earlier report"):
        reporter.generate_model_report(False)
    with pytest.raises(RuntimeError, match="removed with an earlier report"):
        reporter.generate_qconfig_mapping()


@pytest.mark.parametrize("name", MODELS)
def test_mappings_are_those_of_torch(name):
    (expected, _), (reporter, _) = reports(name, ALL)
    for mapping in ("generate_qconfig_mapping", "generate_equalization_mapping"):
        found, wanted = (
            getattr(one, mapping)().module_name_qconfigs for one in (reporter, expected)
        )
        assert [*found] == [*wanted]
        for path, qconfig in found.items():
            if mapping == "generate_qconfig_mapping":
                assert ours.qconfig_equals(qconfig, wanted[path])
            else:
                assert type(qconfig.input_activation()).__name__ == "_InputEqualizationObserver"
                assert type(wanted[path].weight()).__name__ == "_WeightEqualizationObserver"
                assert type(qconfig.weight()).__name__ == "_WeightEqualizationObserver"


def test_mappings_quantise_models():
    _, (reporter, _) = reports("ResNetBase", ALL)
    mapping = reporter.generate_qconfig_mapping()
    model, inputs = model_and_inputs("ResNetBase")
    prepared = our_fx.prepare_fx(model.eval(), mapping, inputs)
    prepared(*inputs)
    converted = our_fx.convert_fx(prepared)
    assert converted.fc.weight.dtype == torch.int8
    assert len(converted.fc.weight_scale) == converted.fc.out_features


@pytest.mark.parametrize("ch_axis", [1])
@pytest.mark.parametrize("percentile", [0.0, 0.5, 0.9, 0.975, 1.0])
@pytest.mark.parametrize("shape", [(3, 4), (11, 4), (2, 4, 5, 5), (2, 4, 7)])
def test_observer(ch_axis, percentile, shape):
    expected, observer = (
        package.ModelReportObserver(ch_axis, percentile)
        for package in (their_observers, our_observers)
    )
    generator = torch.Generator().manual_seed(0)
    for number in range(4):
        batch = torch.randn(shape, generator=generator) * (number + 1)
        if number == 2:
            batch[:, 1] = 0
        if number == 3:
            batch[:, 2] = 5
        assert observer(batch) is batch
        expected(batch)
    assert observer.state_dict().keys() == expected.state_dict().keys()
    for name, buffer in observer.state_dict().items():
        assert_close(buffer, expected.state_dict()[name], rtol=0, atol=0)
    assert observer.num_batches_tracked == expected.num_batches_tracked
    assert_close(
        observer.get_batch_to_epoch_ratio(), expected.get_batch_to_epoch_ratio(), rtol=0, atol=0
    )
    loaded = our_observers.ModelReportObserver(ch_axis, percentile)
    loaded.load_state_dict(expected.state_dict())
    assert torch.equal(loaded.min_val, observer.min_val)
    observer.reset_batch_and_epoch_values()
    assert observer.num_batches_tracked == 0
    with pytest.raises(ValueError, match="has seen no values"):
        observer.get_batch_to_epoch_ratio()


def test_bad_input():
    observer = our_observers.ModelReportObserver()
    with pytest.raises(ValueError, match="batch 1 has NaN or infinity"):
        observer(torch.tensor([[1.0, math.nan]]))
    observer = our_observers.ModelReportObserver()
    observer(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"all values are 1\.0"):
        observer.get_batch_to_epoch_ratio()
    with pytest.raises(NotImplementedError, match="no quantisation parameters"):
        observer.calculate_qparams()
    with pytest.raises(ValueError, match="got 'cuda'"):
        our_detectors.PerChannelDetector("cuda")
    with pytest.raises(ValueError, match="between 0 and 1"):
        our_detectors.InputWeightEqualizationDetector(1.0)
    with pytest.raises(AssertionError, match="reference_percentile"):
        our_detectors.OutlierDetector(reference_percentile=2)
    model = our_fx.prepare_fx(
        nn.Sequential(nn.Linear(3, 3)).eval(),
        ours.get_default_qconfig_mapping(),
        (torch.randn(2, 3),),
    )
    with pytest.raises(ValueError, match="at least one detector"):
        our_report.ModelReport(model, set())
    with pytest.raises(ValueError, match="different names"):
        our_report.ModelReport(model, detectors(our_detectors, "outlier", "outlier"))
    reporter = our_report.ModelReport(model, set(detectors(our_detectors, "equalization")))
    with pytest.raises(RuntimeError, match="call prepare_detailed_calibration"):
        reporter.generate_model_report(False)
    with pytest.raises(RuntimeError, match="there are no reports yet"):
        reporter.generate_visualizer()
    reporter.prepare_detailed_calibration()
    with pytest.raises(ValueError, match="has the observers already"):
        reporter.prepare_detailed_calibration()
    model(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"0: expected a range of the input, all values are 1\.0"):
        reporter.generate_model_report(False)


def convolution():
    return our_fx.prepare_fx(
        nn.Sequential(nn.Conv2d(3, 3, 1)).eval(),
        ours.get_default_qconfig_mapping(),
        (torch.randn(2, 3, 4, 4),),
    )


def test_detectors_share_an_observer():
    model = convolution()
    kinds = [
        our_detectors.OutlierDetector(ch_axis=1),
        our_detectors.InputWeightEqualizationDetector(0.5, ch_axis=1),
        our_detectors.DynamicStaticDetector(),
    ]
    our_report.ModelReport(model, kinds).prepare_detailed_calibration()
    observer = model.get_submodule("0.model_report_pre_observer")
    assert observer.comp_percentile.item() == pytest.approx(0.975)
    other = our_report.ModelReport(
        convolution(), [kinds[1], our_detectors.OutlierDetector(ch_axis=2)]
    )
    with pytest.raises(ValueError, match="channels in dimension 1, outlier_detector in 2"):
        other.prepare_detailed_calibration()


FACTS = {
    "a": {
        "flag": True,
        "ratio": torch.tensor(0.5),
        "low": torch.tensor([1.0, 2.0]),
        "marks": [True, False],
    },
    "a.b": {"flag": False, "low": torch.tensor([3.0, 4.0]), "marks": [False, False]},
}


def visualizers():
    return [
        package.ModelReportVisualizer(copy.deepcopy(FACTS))
        for package in (our_visualizer, their_visualizer)
    ]


@pytest.mark.parametrize("module", ["", "a", "b"])
@pytest.mark.parametrize("feature", ["", "low", "flag", "ratio", "nothing"])
def test_tables(feature, module):
    found, expected = visualizers()
    assert found.get_all_unique_module_fqns() == expected.get_all_unique_module_fqns()
    for plottable in (True, False):
        assert found.get_all_unique_feature_names(plottable) == {
            *expected.get_all_unique_feature_names(plottable)
        }
    assert found.generate_filtered_tables(feature, module) == expected.generate_filtered_tables(
        feature, module
    )


@pytest.mark.parametrize("feature", ["low", "flag", "ratio"])
def test_values_of_plots(feature):
    found, expected = visualizers()
    assert found._get_plottable_data(feature, "") == expected._get_plottable_data(feature, "")


def test_table_as_text(capsys):
    found, _ = visualizers()
    found.generate_table_visualization("low", "a.b")
    assert capsys.readouterr().out.splitlines() == [
        "Channels",
        "idx  layer_fqn  channel  low",
        "  0  a.b              0    3",
        "  1  a.b              1    4",
    ]
    found.generate_table_visualization("nothing")
    assert capsys.readouterr().out == "No data points to generate table with.\n"


class Plots:
    """The calls of matplotlib."""

    def __init__(self):
        self.lines, self.bars = [], []

    def subplot(self):
        nothing = lambda *_, **__: None  # noqa: E731
        return SimpleNamespace(
            set_ylabel=nothing,
            set_xlabel=nothing,
            set_title=nothing,
            legend=nothing,
            plot=lambda x, y, **_: self.lines.append((x, y)),
        )

    def hist(self, values, bins, **_):
        self.bars.append((values, bins))
        return None, [0], None

    def xticks(self, _):
        pass

    def show(self):
        pass


def test_plots(monkeypatch):
    plots = Plots()
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", SimpleNamespace(pyplot=plots))
    found, _ = visualizers()
    found.generate_plot_visualization("low")
    found.generate_plot_visualization("ratio")
    found.generate_histogram_visualization("low", num_bins=3)
    assert plots.lines == [([0, 1], [1.5, 3.5]), ([0], [0.5])]
    assert plots.bars == [([1.0, 3.0, 2.0, 4.0], 3)]
    with pytest.raises(ValueError, match="expected a filter that chooses one feature, '' chooses"):
        found.generate_plot_visualization("")


def test_texts_name_modules():
    _, (reporter, _) = reports("ConvBnReLUModel", ALL)
    texts = {name: text for name, (text, _) in reporter.generate_model_report(True).items()}
    assert "conv.0: one scale" in texts["per_channel_detector"]
    assert "conv.0: static, which is faster" in texts["dynamic_vs_static_detector"]
    assert "conv.0, axis 1: yes, it helps" in texts["input_weight_equalization_detector"]
    assert "conv.0, axis 1, channel 0: outliers" in texts["outlier_detector"]
