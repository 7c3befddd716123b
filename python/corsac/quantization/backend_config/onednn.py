"""The description of onednn, as in ``torch.ao.quantization.backend_config.onednn``."""

from corsac.quantization.backend_config._backends import get_onednn_backend_config

__all__ = ["get_onednn_backend_config"]
