"""What the PyTorch peers have in common: one rank of a run on the same files as atoll's.

A peer gives `run(wrap)`: wrap(model, args) returns (model, step), and step(loss) does backward,
clipping, update and zeroing. Rank 0 prints one line of JSON: milliseconds and loss of each step.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.distributed
import transformers

import shapes

sys.path.insert(0, str(shapes.ROOT / "tools" / "golden"))
from train_torch import batch_at, read_split  # noqa: E402  (the order of docs/data-order.md)

LR, BETAS, EPS, DECAY, CLIP = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=shapes.SHAPES, required=True)
    parser.add_argument("--init", type=pathlib.Path, required=True)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    shape = shapes.SHAPES[args.model]
    args.sequences, args.context, args.seed = shape.sequences, shape.context, 1
    return args


def adamw(model):
    """atoll's groups: matrices decay. Fused is the fastest that PyTorch has on a CPU."""
    parameters = list(model.parameters())
    return torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": DECAY},
         {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, fused=True)


def plain_step(model, optimizer):
    def step(loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    return step


def run(wrap, same_batch=False):
    args = parse()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.init, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.train()
    model, step = wrap(model, args)
    tokens = read_split(args.corpus, "train")
    times, losses = [], []
    for number in range(args.steps):
        begin = time.perf_counter()
        first = (number if same_batch else number * ranks + rank) * args.sequences
        rows = batch_at(tokens, args, first, args.sequences)
        logits = model(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        step(loss)
        times.append(1e3 * (time.perf_counter() - begin))
        losses.append(loss.detach())
    mean = torch.stack(losses)
    torch.distributed.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"step_ms": times, "loss": (mean / ranks).tolist()}), flush=True)
    torch.distributed.destroy_process_group()
