"""Settings of graph mode, as in ``torch.ao.quantization.fx``."""
