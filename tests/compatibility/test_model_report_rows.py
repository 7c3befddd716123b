"""The rows of docs/compatibility.md about reports on calibrated models."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.quantization import quantize_fx as their_fx
from torch.ao.quantization.fx._model_report import detector as their_detectors
from torch.ao.quantization.fx._model_report import model_report as their_report
from torch.ao.quantization.fx._model_report import model_report_observer as their_observers
from torch.ao.quantization.fx._model_report import model_report_visualizer as their_visualizer

import corsac.quantization as ours
from corsac.quantization import quantize_fx as our_fx
from corsac.quantization.fx._model_report import detector as our_detectors
from corsac.quantization.fx._model_report import model_report as our_report
from corsac.quantization.fx._model_report import model_report_observer as our_observers
from corsac.quantization.fx._model_report import model_report_visualizer as our_visualizer
from kit import row

pytestmark = pytest.mark.filterwarnings("ignore")


def reporter(package: Any, fx: Any, report: Any, detectors: list[Any], qat: bool = False) -> Any:
    model = nn.Sequential(nn.Linear(4, 4)).train(qat)
    backend = "fbgemm"
    if qat:
        mapping = package.get_default_qat_qconfig_mapping(backend)
        prepared = fx.prepare_qat_fx(model, mapping, (torch.randn(2, 4),))
    else:
        mapping = package.get_default_qconfig_mapping(backend)
        prepared = fx.prepare_fx(model, mapping, (torch.randn(2, 4),))
    made = report.ModelReport(prepared, detectors)
    made.prepare_detailed_calibration()(torch.randn(8, 4))
    return made


@row("detectors of `ModelReport` that share an observer")
def test_shared_observers() -> None:
    for package, fx, report, detectors, share in (
        (theirs, their_fx, their_report, their_detectors, 0.9),
        (ours, our_fx, our_report, our_detectors, 0.975),
    ):
        # The order is that of a set.
        kinds = [detectors.OutlierDetector(), detectors.DynamicStaticDetector()]
        made = reporter(package, fx, report, kinds)
        observer = made._model.get_submodule("0.model_report_pre_observer")
        assert observer.comp_percentile.item() == pytest.approx(share)


@row("`PerChannelDetector` on fake quantisers")
def test_fake_quantisers() -> None:
    for package, fx, report, detectors, used in (
        (theirs, their_fx, their_report, their_detectors, False),
        (ours, our_fx, our_report, our_detectors, True),
    ):
        made = reporter(package, fx, report, [detectors.PerChannelDetector("fbgemm")], qat=True)
        facts = made.generate_model_report(True)["per_channel_detector"][1]
        assert facts["0"]["per_channel_quantization_used"] is used
    plain = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(AttributeError, match="qconfig"):
        their_detectors.PerChannelDetector("fbgemm").generate_detector_report(plain)
    assert our_detectors.PerChannelDetector("fbgemm").generate_detector_report(plain)[1] == {}


@row("`ModelReportObserver` with channels in another dimension than 1")
def test_other_channels() -> None:
    batch = torch.tensor([[1.0, 2, 4], [10, 20, 80]])
    expected = their_observers.ModelReportObserver(ch_axis=0, comp_percentile=0.5)
    expected(batch)
    observer = our_observers.ModelReportObserver(ch_axis=0, comp_percentile=0.5)
    observer(batch)
    assert expected.average_percentile_ratio.numel() == 3  # one for each column
    assert observer.average_percentile_ratio.tolist() == [2, 4]


FACTS = {"a": {"low": torch.tensor([1.0])}, "b": {"low": torch.tensor([3.0, 5.0])}}


@row("tables and plots of modules with different numbers of channels")
def test_tables_and_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, found = (
        package.ModelReportVisualizer(copy.deepcopy(FACTS))
        for package in (their_visualizer, our_visualizer)
    )
    with pytest.raises(IndexError):
        expected.generate_filtered_tables()
    assert [row[1:] for row in found.generate_filtered_tables()["channel_level_info"][1]] == [
        ["a", 0, 1.0],
        ["b", 0, 3.0],
        ["b", 1, 5.0],
    ]
    lines = []

    def axes() -> Any:
        axis = SimpleNamespace(plot=lambda x, y, **_: lines.append((x, y)))
        for name in ("set_xlabel", "set_ylabel", "set_title", "legend"):
            setattr(axis, name, lambda *_, **__: None)
        return axis

    pyplot = SimpleNamespace(subplot=axes, xticks=lambda _: None, show=lambda: None)
    monkeypatch.setattr(their_visualizer, "plt", pyplot, raising=False)
    monkeypatch.setattr(their_visualizer, "got_matplotlib", True)
    monkeypatch.setitem(sys.modules, "matplotlib", SimpleNamespace(pyplot=pyplot))
    even = {"a": {"low": torch.tensor([1.0, 2.0])}, "b": {"low": torch.tensor([3.0, 5.0])}}
    their_visualizer.ModelReportVisualizer(even).generate_plot_visualization("low")
    our_visualizer.ModelReportVisualizer(even).generate_plot_visualization("low")
    found.generate_plot_visualization("low")
    assert lines == [
        ([0, 1], [2.0, 3.5]),  # sums over modules of channel 0 and channel 1
        ([0, 1], [1.5, 4.0]),
        ([0, 1], [1.0, 4.0]),
    ]


@row("texts of reports; errors of `ModelReport`, and packages that plots need")
def test_texts_and_errors(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    for report, detectors, error in (
        (their_report, their_detectors, Exception),
        (our_report, our_detectors, RuntimeError),
    ):
        made = report.ModelReport(model, {detectors.OutlierDetector()})
        with pytest.raises(error) as raised:
            made.generate_model_report(False)
        assert type(raised.value) is error
    monkeypatch.setattr(their_visualizer, "got_matplotlib", False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    their_visualizer.ModelReportVisualizer(FACTS).generate_plot_visualization("low")
    assert "install matplotlib" in capsys.readouterr().out
    with pytest.raises(ImportError, match="matplotlib"):
        our_visualizer.ModelReportVisualizer(FACTS).generate_plot_visualization("low")
    monkeypatch.setattr(their_visualizer, "got_tabulate", False)
    their_visualizer.ModelReportVisualizer(FACTS).generate_table_visualization("low")
    assert "install tabulate" in capsys.readouterr().out
    our_visualizer.ModelReportVisualizer(FACTS).generate_table_visualization("low")
    assert capsys.readouterr().out.startswith("Channels\nidx  layer_fqn  channel  low\n")
