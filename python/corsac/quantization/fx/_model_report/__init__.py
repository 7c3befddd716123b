"""Reports on calibrated models and their settings, as in ``torch.ao.quantization.fx._model_report``."""
