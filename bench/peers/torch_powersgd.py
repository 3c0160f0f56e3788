"""PyTorch's PowerSGD hook beside its plain DistributedDataParallel: what it costs in loss.

    torchrun --nproc-per-node 2 bench/peers/torch_powersgd.py CORPUS [--rank 4] [--steps 800]

CORPUS is the data directory of a run of bench/compressed.py; the model, the batches and the learning
rate are those of that script. With --rank 0 gradients are summed as they are. Rank 0 prints one line
of JSON: the held-out loss, and how many times fewer numbers a step with the hook sends.
"""

import argparse
import json
import math
import pathlib
import struct
import sys
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn import functional as F

import torch_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "golden"))
import data_order  # noqa: E402  (docs/data-order.md)

SHAPE = SimpleNamespace(family="llama", vocab=1024, width=96, layers=3, heads=4, kv_heads=2,
                        inner=256, context=128)
BATCH, PEAK, LEAST, DECAY = 4, 2e-3, 0.02, 0.1


def read_split(corpus, split):
    """All tokens of a split, end to end (docs/data-format.md)."""
    parts = []
    for entry in json.loads((corpus / "corpus.json").read_text())["splits"][split]:
        raw = (corpus / entry["file"]).read_bytes()
        width, count = struct.unpack_from("<IQ", raw, 12)
        parts.append(np.frombuffer(raw, {2: "<u2", 4: "<u4"}[width], count, 88).astype(np.int64))
    return np.concatenate(parts)


def batch_at(tokens, seed, first, count):
    rows = []
    for index in range(first, first + count):
        _, _, begin = data_order.sample(seed, len(tokens), SHAPE.context, index)
        rows.append(tokens[begin:begin + SHAPE.context + 1])
    return torch.from_numpy(np.stack(rows))


def learning_rate(step, steps):
    warmup = steps // 20
    if step < warmup:
        return PEAK * (step + 1) / warmup
    along = (step - warmup) / (steps - warmup)
    return PEAK * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * along)))


def loss_of(model, rows):
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def held_out(model, tokens):
    size = SHAPE.context + 1
    losses = []
    with torch.no_grad():
        for begin in range(0, len(tokens) - size * 16, size * 16):
            rows = torch.from_numpy(tokens[begin:begin + size * 16]).view(16, size)
            losses.append(loss_of(model, rows).item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(args.seed)
    model = torch_models.Model(SHAPE)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": DECAY},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
        lr=PEAK, betas=(0.9, 0.99), eps=1e-8)
    # One bucket: the hook waits in gloo's callbacks, of which there are two threads, and two buckets
    # wait for each other there.
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=64)
    state = powersgd.PowerSGDState(None, matrix_approximation_rank=max(args.rank, 1),
                                   start_powerSGD_iter=10)
    if args.rank > 0:
        wrapped.register_comm_hook(state, powersgd.powerSGD_hook)
    tokens = read_split(args.corpus, "train")
    for number in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number, args.steps)
        mine = BATCH // ranks
        rows = batch_at(tokens, args.seed, number * BATCH + rank * mine, mine)
        loss_of(wrapped, rows).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(json.dumps({"held_out_loss": held_out(model, read_split(args.corpus, "heldout")),
                          "times_fewer": state.compression_stats()[0] if args.rank > 0 else 1.0,
                          "rank": args.rank, "seed": args.seed}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
