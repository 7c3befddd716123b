"""The description of qnnpack, as in ``torch.ao.quantization.backend_config.qnnpack``."""

from corsac.quantization.backend_config._backends import get_qnnpack_backend_config

__all__ = ["get_qnnpack_backend_config"]
