#!/usr/bin/env python3
"""Writes src/atoll/ops/testdata/gated_delta.json: the recurrence of Qwen3.5's linear attention.

    .venv-golden/bin/python tools/golden/gated_delta.py

Operands, the result, and the gradients of sum(dy * y), as transformers' torch_recurrent_gated_delta_rule and torch
compute them in f32. q is as atoll's op takes it, scaled already.
"""

import json
import pathlib

import torch
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_recurrent_gated_delta_rule

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "src/atoll/ops/testdata/gated_delta.json"
B, T, H, K, V = 2, 6, 2, 3, 4


def main():
    torch.manual_seed(1)
    leaves = {
        "q": torch.randn(B, T, H, K), "k": torch.nn.functional.normalize(torch.randn(B, T, H, K), dim=-1),
        "v": torch.randn(B, T, H, V), "g": -torch.rand(B, T, H), "beta": torch.rand(B, T, H),
    }
    for tensor in leaves.values():
        tensor.requires_grad_(True)
    y, _ = torch_recurrent_gated_delta_rule(
        leaves["q"] * K**0.5, leaves["k"], leaves["v"], g=leaves["g"], beta=leaves["beta"])
    dy = torch.randn(y.shape)
    (dy * y).sum().backward()
    numbers = {name: tensor.detach() for name, tensor in leaves.items()} | {"y": y.detach(), "dy": dy}
    numbers |= {"d" + name: tensor.grad for name, tensor in leaves.items()}
    OUTPUT.write_text(json.dumps(
        {name: [round(x, 8) for x in tensor.flatten().tolist()] for name, tensor in numbers.items()}) + "\n")


if __name__ == "__main__":
    main()
