"""Tables and plots of the facts in reports."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from corsac._messages.table import table

__all__ = ["ModelReportVisualizer"]

#: The value of a feature that a module does not have.
_NONE = "Not Applicable"


class ModelReportVisualizer:
    """Tables, lines and histograms of features: facts about modules, or about each of their channels.

    Filters are parts of names; "" takes all.

    Args:
        generated_reports: by path of a module and name of a feature, a value: a tensor with one dimension or a list if
            it is one of channels.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    TABLE_TENSOR_KEY = "tensor_level_info"
    TABLE_CHANNEL_KEY = "channel_level_info"

    NUM_NON_FEATURE_TENSOR_HEADERS = 2
    NUM_NON_FEATURE_CHANNEL_HEADERS = 3

    CHANNEL_NUM_INDEX = 2

    def __init__(self, generated_reports: OrderedDict[str, Any]) -> None:
        self.generated_reports = generated_reports

    def get_all_unique_module_fqns(self) -> set[str]:
        """The paths of modules."""
        return set(self.generated_reports)

    def get_all_unique_feature_names(self, plottable_features_only: bool = True) -> set[str]:
        """The names of features: of all, or of those that are tensors."""
        return {
            name
            for features in self.generated_reports.values()
            for name, value in features.items()
            if not plottable_features_only or type(value) is torch.Tensor
        }

    def _get_filtered_data(
        self, feature_filter: str, module_fqn_filter: str
    ) -> OrderedDict[str, Any]:
        return OrderedDict(
            (path, {name: value for name, value in features.items() if feature_filter in name})
            for path, features in self.generated_reports.items()
            if module_fqn_filter in path
        )

    def generate_filtered_tables(
        self, feature_filter: str = "", module_fqn_filter: str = ""
    ) -> dict[str, tuple[list[Any], list[Any]]]:
        """Headers and rows of two tables: "tensor_level_info" of modules, "channel_level_info" of their channels.

        Rows begin with a number and a path, and with the number of the channel in the second table. Features that a
        module or channel does not have are "Not Applicable".
        """
        data = self._get_filtered_data(feature_filter, module_fqn_filter)
        named: tuple[set[str], set[str]] = (set(), set())
        for features in data.values():
            for name, value in features.items():
                named[_is_of_channels(value)].add(name)
        of_modules, of_channels = (sorted(names) for names in named)
        modules = [
            [number, path, *(_number(features.get(name, _NONE)) for name in of_modules)]
            for number, (path, features) in enumerate(data.items())
            if of_modules
        ]
        channels: list[list[Any]] = []
        for path, features in data.items():
            values = [features.get(name, []) for name in of_channels]
            for channel in range(max(map(len, values), default=0)):
                cells = [
                    _number(value[channel]) if channel < len(value) else _NONE for value in values
                ]
                channels.append([len(channels), path, channel, *cells])
        return {
            self.TABLE_TENSOR_KEY: (["idx", "layer_fqn", *of_modules] if modules else [], modules),
            self.TABLE_CHANNEL_KEY: (
                ["idx", "layer_fqn", "channel", *of_channels] if channels else [],
                channels,
            ),
        }

    def generate_table_visualization(
        self, feature_filter: str = "", module_fqn_filter: str = ""
    ) -> None:
        """Print the two tables."""
        tables = self.generate_filtered_tables(feature_filter, module_fqn_filter)
        parts = []
        for key, title in (
            (self.TABLE_TENSOR_KEY, "Modules"),
            (self.TABLE_CHANNEL_KEY, "Channels"),
        ):
            headers, rows = tables[key]
            if rows:
                cells = [headers, *([_text(cell) for cell in row] for row in rows)]
                parts.append("\n".join([title, *table(cells, left={1})]))
        print("\n\n".join(parts) or "No data points to generate table with.")

    def _get_plottable_data(
        self, feature_filter: str, module_fqn_filter: str
    ) -> tuple[list[int], list[Any], bool]:
        """Numbers of modules, the values of the one feature that is chosen, and whether there is a list for each channel.

        Raises:
            ValueError: the filter chooses no feature, or several.
        """
        tables = self.generate_filtered_tables(feature_filter, module_fqn_filter)
        headers, rows = tables[self.TABLE_TENSOR_KEY]
        of_modules = headers[self.NUM_NON_FEATURE_TENSOR_HEADERS :]
        headers, channels = tables[self.TABLE_CHANNEL_KEY]
        of_channels = headers[self.NUM_NON_FEATURE_CHANNEL_HEADERS :]
        if len(of_channels) == 1:
            order = {path: at for at, path in enumerate(dict.fromkeys(row[1] for row in channels))}
            number = max(row[self.CHANNEL_NUM_INDEX] for row in channels) + 1
            values: list[list[Any]] = [[] for _ in range(number)]
            places = []
            for _, path, channel, value in channels:
                if not isinstance(value, str):
                    values[channel].append(value)
                    places.append(order[path])
            return sorted(set(places)), values, True
        if len(of_modules) == 1:
            found = [(row[0], row[2]) for row in rows if not isinstance(row[2], str)]
            return [at for at, _ in found], [value for _, value in found], False
        names = [*of_modules, *of_channels]
        raise ValueError(
            f"expected a filter that chooses one feature, {feature_filter!r} chooses {names or 'none'}; "
            "get_all_unique_feature_names has their names"
        )

    def generate_plot_visualization(self, feature_filter: str, module_fqn_filter: str = "") -> None:
        """Show a line of the one feature that is chosen, by module; of channels it is the mean.

        Needs matplotlib.
        """
        from matplotlib import pyplot

        places, values, of_channels = self._get_plottable_data(feature_filter, module_fqn_filter)
        axes = pyplot.subplot()
        axes.set_ylabel(feature_filter)
        axes.set_title(f"{feature_filter} Plot")
        pyplot.xticks(places)
        if of_channels:
            axes.set_xlabel("First idx of module")
            means = [
                sum(own) / len(own) for own in self._by_module(feature_filter, module_fqn_filter)
            ]
            axes.plot(places, means, label=f"Average Value Across {len(values)} Channels")
            axes.legend(loc="upper right")
        else:
            axes.set_xlabel("idx")
            axes.plot(places, values)
        pyplot.show()

    def _by_module(self, feature_filter: str, module_fqn_filter: str) -> list[list[Any]]:
        """The values of channels for each module that has the feature."""
        _, rows = self.generate_filtered_tables(feature_filter, module_fqn_filter)[
            self.TABLE_CHANNEL_KEY
        ]
        found: dict[str, list[Any]] = {}
        for row in rows:
            if not isinstance(row[-1], str):
                found.setdefault(row[1], []).append(row[-1])
        return [*found.values()]

    def generate_histogram_visualization(
        self, feature_filter: str, module_fqn_filter: str = "", num_bins: int = 10
    ) -> None:
        """Show a histogram of the one feature that is chosen, of all modules and channels.

        Needs matplotlib.
        """
        from matplotlib import pyplot

        _, values, of_channels = self._get_plottable_data(feature_filter, module_fqn_filter)
        axes = pyplot.subplot()
        axes.set_xlabel(feature_filter)
        axes.set_ylabel("Frequency")
        axes.set_title(f"{feature_filter} Histogram")
        everything = [value for own in values for value in own] if of_channels else values
        _, bins, _ = pyplot.hist(everything, bins=num_bins, stacked=of_channels, rwidth=0.8)
        pyplot.xticks(bins)
        pyplot.show()


def _is_of_channels(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, torch.Tensor) and value.dim() > 0)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
