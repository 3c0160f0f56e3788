#!/usr/bin/env python3
"""What products of 8 bits do to a loss: runs in bf16, and with train.fp8 = tensor and blocks.

    bench/fp8_loss.py TEXT [--atoll build/release/bin/atoll] [--steps 400] [--seeds 3]
                      [--width 128] [--blocks 4] [--vocab 1024] [--runs DIR]

A CPU rounds operands as a GPU does and multiplies them in f32. A GPU adds the products of a forward pass
up in fewer bits where a whole operand has one scale; that is not in these losses. Held-out loss after equal steps, the mean of some seeds, and its change against bf16 with the
same seed. Runs that are there already are not made again.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

WAYS = {"bf16": "off", "fp8, tensor": "tensor", "fp8, blocks": "blocks"}


def held_out(directory, step):
    """The loss after that step, in a list; an empty one where a run has not come so far."""
    log = directory / "metrics.jsonl"
    records = map(json.loads, log.read_text().splitlines()) if log.exists() else []
    return [r["held_out_loss"] for r in records if "held_out_loss" in r and r["step"] == step]


def run(options, fp8, seed):
    sizes = f"{options.width}x{options.blocks}-{options.vocab}-{options.steps}"
    directory = options.runs / f"{fp8}-{sizes}-{seed}"
    if not held_out(directory, options.steps):
        command = [options.atoll, "train", f"--run.dir={directory}", f"--data.text={options.text}",
                   f"--run.seed={seed}", f"--train.steps={options.steps}", "--train.context=128",
                   "--train.batch_size=8", "--train.micro_batch=8", "--train.dtype=bf16",
                   f"--train.fp8={fp8}", f"--model.hidden_size={options.width}",
                   f"--model.num_hidden_layers={options.blocks}", "--model.num_attention_heads=4",
                   "--model.num_key_value_heads=4", f"--model.intermediate_size={3 * options.width}",
                   f"--data.vocab_size={options.vocab}", "--data.held_out=0.05", "--optim.lr=2e-3",
                   "--optim.min_lr_ratio=0.02", "--optim.beta2=0.99",
                   f"--optim.warmup_steps={options.steps // 20}", "--log.tensorboard=false",
                   "--device.bf16=f32", "--eval.samples=0"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return held_out(directory, options.steps)[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--atoll", default="build/release/bin/atoll")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/fp8-loss"))
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    losses = {way: [run(options, fp8, seed) for seed in seeds] for way, fp8 in WAYS.items()}
    print("| products | held-out loss | beside bf16 |\n|---|---|---|")
    for way, found in losses.items():
        changes = [100 * (mine / theirs - 1) for mine, theirs in zip(found, losses["bf16"], strict=True)]
        spread = statistics.stdev(changes) if len(changes) > 1 else 0
        print(f"| {way} | {statistics.mean(found):.4f} | {statistics.mean(changes):+.2f}% ± {spread:.2f} |")


if __name__ == "__main__":
    main()
