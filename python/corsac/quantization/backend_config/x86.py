"""The description of x86, as in ``torch.ao.quantization.backend_config.x86``."""

from corsac.quantization.backend_config._backends import get_x86_backend_config

__all__ = ["get_x86_backend_config"]
