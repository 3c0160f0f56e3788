#!/usr/bin/env python3
"""The part of a training step that its matrix products take at oneDNN's best, on two threads.

    bench/step_share.py [gpt2-b4-t256 ...] [--rounds 3] [--steps 5]

Steps and products_bench take turns, so that both sides meet the same machine; of the products before
and after a step the faster ones count, and of the rounds the median. Attention's own products are
matrix products too, and are told apart. Needs the machine for itself.
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
    """Of the weights' products, and of attention's."""
    shape = SHAPES[name]
    words = [model_name(name), shape.tokens, "f32", shape.context, shape.heads,
             shape.width // shape.heads]
    said = subprocess.run([args.build / "bench/products_bench", *map(str, words)], check=True,
                          capture_output=True, text=True).stdout
    return tuple(float(re.search(rf"{which} products of a step: ([0-9.]+) ms", said)[1])
                 for which in ("all", "attention's"))


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
    print("| | step, ms | products at oneDNN's best, ms: weights', attention's | weights' of the "
          "step, round by round | median | with attention's | aim |\n"
          "|---|---|---|---|---|---|---|")
    for name in args.shapes:
        steps, best, attention = [], [], []
        after = products_ms(args, name)
        for _ in range(args.rounds):
            before = after
            steps.append(step_ms(args, name))
            after = products_ms(args, name)
            best.append(min(before[0], after[0]))
            attention.append(min(before[1], after[1]))
        shares = [100 * b / s for b, s in zip(best, steps)]
        whole = [100 * (b + a) / s for b, a, s in zip(best, attention, steps)]
        print(f"| {name} | {statistics.median(steps):.1f} | {statistics.median(best):.1f}, "
              f"{statistics.median(attention):.1f} | "
              f"{', '.join(f'{share:.1f}' for share in shares)} | "
              f"{statistics.median(shares):.1f}% | "
              f"{', '.join(f'{share:.1f}' for share in whole)}: {statistics.median(whole):.1f}% | "
              f"{AIMS[name]}% |", flush=True)


if __name__ == "__main__":
    main()
