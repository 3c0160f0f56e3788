#!/usr/bin/env python3
"""The part of a training step that its matrix products take at oneDNN's best, on two threads.

    bench/step_share.py [gpt2-b4-t256 ...] [--rounds 3] [--steps 5]

Steps and products_bench take turns, so that both sides meet the same machine; of the products before
and after a step the faster ones count, and of the rounds the median. Products are taken at their
fastest calls, which is what the aim is of, and at their median ones, as steps are. Attention's own
products are matrix products too, and are told apart. Needs the machine for itself.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
from step_shapes import SHAPES  # noqa: E402

AIMS = {"gpt2-b4-t256": 85, "gpt2-b1-t1024": 85, "llama-30m-t512": 80, "demo": 50}


def model_name(name):
    return name.split("-")[0]


def products_ms(args, name):
    """Of the weights' products and of attention's: at their fastest calls, then at the median."""
    shape = SHAPES[name]
    words = [model_name(name), shape.tokens, "f32", shape.context, shape.heads,
             shape.width // shape.heads]
    said = subprocess.run([args.build / "bench/products_bench", *map(str, words)], check=True,
                          capture_output=True, text=True).stdout
    found = [re.search(rf"{which} products of a step: ([0-9.]+) ms by the library "
                       r"\(([0-9.]+) at its luckiest", said) for which in ("all", "attention's")]
    return tuple(float(match[group]) for group in (2, 1) for match in found)


def step_ms(args, name):
    said = subprocess.run([args.build / "bin/atoll", "bench", "step", *SHAPES[name].settings(),
                           "--steps", str(args.steps), "--json"], check=True,
                          capture_output=True, text=True, cwd=ROOT).stdout
    return 1e3 * statistics.median(json.loads(said)["step_seconds"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), help=", ".join(SHAPES))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    print("| | products at | step, ms | by oneDNN, ms: weights', attention's | weights' of the step, "
          "round by round: median | with attention's | aim |\n|---|---|---|---|---|---|---|")
    for name in args.shapes:
        steps, rounds = [], []
        after = products_ms(args, name)
        for _ in range(args.rounds):
            before = after
            steps.append(step_ms(args, name))
            after = products_ms(args, name)
            rounds.append(tuple(map(min, before, after)))
        for label, at, aim in (("best", 0, f"{AIMS[name]}%"), ("median", 2, "")):
            best = [products[at] for products in rounds]
            attention = [products[at + 1] for products in rounds]
            shares = [100 * b / s for b, s in zip(best, steps)]
            whole = [100 * (b + a) / s for b, a, s in zip(best, attention, steps)]
            print(f"| {name} | {label} | {statistics.median(steps):.1f} | "
                  f"{statistics.median(best):.1f}, {statistics.median(attention):.1f} | "
                  f"{listed(shares)} | {listed(whole)} | {aim} |", flush=True)


def listed(shares):
    return f"{', '.join(f'{share:.1f}' for share in shares)}: {statistics.median(shares):.1f}%"


if __name__ == "__main__":
    main()
