"""GPT-2 and Llama in plain PyTorch, as small as they can be said, for speed alone: no dropout, no
cache, and the fused attention where this PyTorch has one."""

import math

import torch
from torch import nn
from torch.nn import functional as F

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")


def attend(q, k, v):
    """(B, H, T, D) each; causal."""
    if HAS_SDPA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    T = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(T, T, dtype=torch.bool).triu(1)
    return scores.masked_fill(mask, -math.inf).softmax(-1) @ v


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(C, dim=2))
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, turn):
        B, T, C = x.shape
        kv = self.kv_heads * self.size
        q, k, v = (part.view(B, T, -1, self.size).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split((C, kv, kv), dim=2))
        q, k = rotate(q, turn), rotate(k, turn)
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(B, T, C))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=2)
        return x + self.down(F.silu(gate) * up)


def rotate(x, turn):
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Model(nn.Module):
    """Tokens (B, T) to logits (B, T, V); the embedding is the head, too."""

    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.is_gpt2 = shape.family == "gpt2"
        if self.is_gpt2:
            self.positions = nn.Embedding(shape.context, shape.width)
            self.blocks = nn.ModuleList(Gpt2Block(shape.width, shape.heads)
                                        for _ in range(shape.layers))
            self.norm = nn.LayerNorm(shape.width)
        else:
            self.blocks = nn.ModuleList(
                LlamaBlock(shape.width, shape.heads, shape.kv_heads, shape.inner)
                for _ in range(shape.layers))
            self.norm = RmsNorm(shape.width)
            size = shape.width // shape.heads
            angles = torch.outer(torch.arange(shape.context, dtype=torch.float32),
                                 10000.0 ** (-torch.arange(0, size, 2) / size))
            angles = torch.cat((angles, angles), dim=-1)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.is_gpt2:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x) if self.is_gpt2 else block(x, (self.cos, self.sin))
        return F.linear(self.norm(x), self.embedding.weight)
