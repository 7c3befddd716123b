"""Counterparts of ``torch.fx.passes.dialect.common``."""
