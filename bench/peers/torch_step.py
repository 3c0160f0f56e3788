"""Training steps of PyTorch on two threads; bench/peers/step.py starts it. Prints a line of JSON:
seconds of each step, and the peak of resident memory."""

import argparse
import json
import resource
import time

import torch
from torch.nn import functional as F

import step_shapes
import torch_models


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=step_shapes.SHAPES)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="autocast")
    args = parser.parse_args()
    shape = step_shapes.SHAPES[args.shape]
    torch.set_num_threads(2)
    torch.manual_seed(1)
    model = torch_models.Model(shape)
    run = torch.compile(model) if args.compile else model
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    settings = {"lr": 3e-4, "betas": (0.9, 0.95)}
    try:
        optimizer = torch.optim.AdamW(groups, fused=True, **settings)
    except (TypeError, RuntimeError):  # older ones have none for CPUs
        optimizer = torch.optim.AdamW(groups, **settings)
    tokens = torch.randint(shape.vocab, (shape.batch, shape.context + 1))
    seconds = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            logits = run(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"step_seconds": seconds, "peak_resident_bytes": peak,
                      "version": torch.__version__}))


if __name__ == "__main__":
    main()
