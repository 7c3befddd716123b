"""Whether two results of a model agree: what the passes are checked with."""

from corsac.passes._agreement import Agreement, compare_outputs

__all__ = ["Agreement", "compare_outputs"]
