"""A typical subclass of interpreters and transformers: operators are swapped."""

import torch


def swapping(base: type) -> type:
    """A subclass of ``base`` in which ``torch.sigmoid`` is ``torch.neg``, and ``x.neg()`` is
    ``x.sigmoid()``."""

    class Swap(base):
        def call_function(self, target, args, kwargs):
            if target is torch.sigmoid:
                return torch.neg(*args, **kwargs)
            return super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            if target == "neg":
                receiver, *rest = args
                return receiver.sigmoid(*rest, **kwargs)
            return super().call_method(target, args, kwargs)

    return Swap
