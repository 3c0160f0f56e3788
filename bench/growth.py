#!/usr/bin/env python3
"""How a training step grows: with layers, with tokens, and attention with the context.

    python3 bench/growth.py

Time must grow as the model's FLOPs do. Each line takes the first as its measure: time to time over
FLOPs to FLOPs is 1 where growth is as predicted.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
BASE = {"model.hidden_size": 256, "model.num_hidden_layers": 4, "model.num_attention_heads": 8,
        "model.num_key_value_heads": 8, "model.intermediate_size": 704, "data.vocab_size": 4096,
        "train.micro_batch": 2, "train.batch_size": 2, "train.context": 256}


def step(args, **changes):
    settings = BASE | {key.replace("__", "."): value for key, value in changes.items()}
    done = subprocess.run(
        [str(args.atoll), "bench", "step", "recipes/kjv-demo.toml", "--json",
         f"--steps={args.steps}", "--device.threads=2",
         *(f"--{key}={value}" for key, value in settings.items())],
        cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    said = json.loads(done.stdout)
    return statistics.median(said["step_seconds"]), said["flops_per_token"] * said["tokens"]


def table(title, rows):
    print(f"\n{title}\n\n| | ms | GFLOP | time to FLOPs, the first is 1 |\n|---|---|---|---|")
    first = rows[0][1] / rows[0][2]
    for name, seconds, flops in rows:
        print(f"| {name} | {1e3 * seconds:.1f} | {flops / 1e9:.2f} | "
              f"{seconds / flops / first:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--steps", type=int, default=15)
    args = parser.parse_args()
    table("Layers", [(n, *step(args, model__num_hidden_layers=n)) for n in (4, 8, 16, 32)])
    table("Tokens (sequences of 256 in a micro-batch)",
          [(n, *step(args, train__micro_batch=n, train__batch_size=n)) for n in (2, 4, 8, 16)])
    table("Tokens (micro-batches of 2 x 256)",
          [(n, *step(args, train__batch_size=n)) for n in (2, 4, 8, 16)])
    table("Context, 2,048 tokens a step",
          [(n, *step(args, train__context=n, train__micro_batch=2048 // n,
                     train__batch_size=2048 // n)) for n in (256, 512, 1024, 2048)])


if __name__ == "__main__":
    main()
