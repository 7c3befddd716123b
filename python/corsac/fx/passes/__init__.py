"""Counterparts of ``torch.fx.passes``."""
