#!/usr/bin/env python3
"""Held-out loss of each way to sync, at equal tokens, with four workers on this machine.

    python3 bench/servers.py --text FILE [--seeds 3] [--steps 300]

Prints a table as bench/results/servers.md has it. Workers share the CPUs, so that with ssp and async
who is late, and how much, is the machine's doing; `staleness` is the mean over steps.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

RECIPE = """
[model]
hidden_size = 96
num_hidden_layers = 3
num_attention_heads = 4
num_key_value_heads = 2
[data]
text = ["{text}"]
vocab_size = 512
[train]
steps = {steps}
batch_size = 16
micro_batch = 4
context = 64
[optim]
lr = 3e-3
warmup_steps = 30
[log]
every = 50
tensorboard = false
"""

SERVERS = ["--sync.mode=ps", "--sync.servers=2"]
WAYS = {
    "all-reduce": [],
    "bsp": SERVERS,
    "ssp, s = 3": SERVERS + ["--sync.consistency=ssp", "--sync.staleness=3"],
    "async": SERVERS + ["--sync.consistency=async"],
    "async, compensation 0.1": SERVERS + ["--sync.consistency=async", "--sync.compensation=0.1"],
    "easgd, every 10": SERVERS + ["--sync.consistency=easgd", "--sync.period=10"],
}


def records(run):
    with open(run / "metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def train(atoll, recipe, run, seed, more):
    """Returns the held-out loss, the mean staleness (None: there is none) and the seconds."""
    start = time.monotonic()
    command = [atoll, "train", recipe, "-n", "4", f"--run.dir={run}", f"--run.seed={seed}",
               "--device.threads=1", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    all_records = records(run)
    loss = [r["held_out_loss"] for r in all_records if "held_out_loss" in r][-1]
    stale = [r["staleness"] for r in all_records if "staleness" in r]
    return loss, statistics.mean(stale) if stale else None, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", default=str(ROOT / "build/release/bin/atoll"))
    parser.add_argument("--text", required=True, help="a file of text")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        recipe = root / "recipe.toml"
        text = pathlib.Path(options.text).resolve()
        recipe.write_text(RECIPE.format(text=text, steps=options.steps), encoding="utf-8")
        losses = {way: [] for way in WAYS}
        print("| way | held-out loss, each seed | mean | against all-reduce | staleness | seconds |")
        print("|---|---|---|---|---|---|")
        for way, more in WAYS.items():
            stale, seconds = [], []
            for seed in range(1, options.seeds + 1):
                run = root / f"run-{len(stale)}-{list(WAYS).index(way)}"
                loss, lag, took = train(options.atoll, recipe, run, seed, more)
                losses[way].append(loss)
                stale.append(lag)
                seconds.append(took)
            mean = statistics.mean(losses[way])
            base = statistics.mean(losses["all-reduce"])
            lag = "" if stale[0] is None else f"{statistics.mean(stale):.1f}"
            each = " / ".join(f"{loss:.3f}" for loss in losses[way])
            print(f"| {way} | {each} | {mean:.3f} | {100 * (mean / base - 1):+.1f}% | {lag} | "
                  f"{statistics.mean(seconds):.0f} |", flush=True)


if __name__ == "__main__":
    main()
