"""The description of executorch, as in ``torch.ao.quantization.backend_config.executorch``."""

from corsac.quantization.backend_config._backends import get_executorch_backend_config

__all__ = ["get_executorch_backend_config"]
