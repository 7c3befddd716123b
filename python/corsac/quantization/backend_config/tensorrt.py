"""The description of TensorRT, as in ``torch.ao.quantization.backend_config.tensorrt``."""

from corsac.quantization.backend_config._backends import (
    get_tensorrt_backend_config,
    get_tensorrt_backend_config_dict,
)

__all__ = ["get_tensorrt_backend_config", "get_tensorrt_backend_config_dict"]
