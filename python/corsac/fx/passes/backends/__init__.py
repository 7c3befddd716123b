"""Counterparts of ``torch.fx.passes.backends``."""
