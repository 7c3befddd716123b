"""The description of fbgemm, as in ``torch.ao.quantization.backend_config.fbgemm``."""

from corsac.quantization.backend_config._backends import get_fbgemm_backend_config

__all__ = ["get_fbgemm_backend_config"]
