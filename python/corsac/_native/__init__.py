"""Calls of native programs: tensors in and out, panics, memory layouts, measurement against PyTorch."""
