"""PyTorch's operators and functions: effects, targets, properties of tensors."""
