"""Small models that several tests use."""

import torch
from torch import nn
from torch.nn import functional as F


class TransformerBlock(nn.Module):
    """A block of a transformer for ids below 50 and vectors of 32 numbers; also returns its keys, joined."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, ids, x):
        h = self.table(ids) + x
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return h + self.down(F.gelu(self.up(self.norm(h)))), self.joined(k)

    def joined(self, keys):
        return torch.cat([keys, keys], 1)
