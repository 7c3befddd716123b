"""The native half of corsac."""

__version__: str
