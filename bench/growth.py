#!/usr/bin/env python3
"""How a training step grows: with layers, with tokens, and attention with the context.

    python3 bench/growth.py --rounds 5

Time must grow as the model's FLOPs do. Each line takes the first of its table as its measure: time to time
over FLOPs to FLOPs is 1 where growth is as predicted. All lines are run in turn, `--rounds` times; `median` is of the
rounds' medians, `fastest` of their fastest steps, which neighbours on the same cores do not reach.
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
    return said["step_seconds"], said["flops_per_token"] * said["tokens"]


TABLES = {
    "Layers": {n: {"model__num_hidden_layers": n} for n in (4, 8, 16, 32)},
    "Tokens (sequences of 256 in a micro-batch)":
        {n: {"train__micro_batch": n, "train__batch_size": n} for n in (2, 4, 8, 16)},
    "Tokens (micro-batches of 2 x 256)": {n: {"train__batch_size": n} for n in (2, 4, 8, 16)},
    "Context, 2,048 tokens a step":
        {n: {"train__context": n, "train__micro_batch": 2048 // n, "train__batch_size": 2048 // n}
         for n in (256, 512, 1024, 2048)},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    found = {}
    for _ in range(args.rounds):
        for title, rows in TABLES.items():
            for name, changes in rows.items():
                seconds, flops = step(args, **changes)
                found.setdefault((title, name), (flops, []))[1].append(seconds)
    for title, rows in TABLES.items():
        print(f"\n{title}\n\n| | GFLOP | median, ms | to FLOPs | fastest, ms | to FLOPs |\n"
              "|---|---|---|---|---|---|")
        first = None
        for name in rows:
            flops, rounds = found[title, name]
            times = (statistics.median(map(statistics.median, rounds)), min(map(min, rounds)))
            first = first or [seconds / flops for seconds in times]
            growth = [seconds / flops / one for seconds, one in zip(times, first)]
            print(f"| {name} | {flops / 1e9:.2f} | {1e3 * times[0]:.1f} | {growth[0]:.3f} | "
                  f"{1e3 * times[1]:.1f} | {growth[1]:.3f} |")


if __name__ == "__main__":
    main()
