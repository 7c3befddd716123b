"""Parts of a graph of which the slowest is as fast as possible."""

from corsac._core import BalanceError
from corsac._splitting.balanced import split_balanced
from corsac._splitting.report import BalanceReport, PartCost

__all__ = ["BalanceError", "BalanceReport", "PartCost", "split_balanced"]
