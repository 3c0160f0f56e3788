#!/usr/bin/env python3
"""Compressed data parallel: loss at equal tokens, bytes, and time over slow links.

    bench/compressed.py TEXT [--atoll build/release/bin/atoll] [--ranks 2] [--steps 800] [--seeds 3]
                        [--only NAME ...] [--runs DIR] [--table]

Trains a small model once for each way to send and each seed, one thread a rank, and prints a table:
held-out loss beside plain all-reduce, bytes that a rank sends in a step, and the time of a step over
links, computed: the measured seconds of a step on this machine without its waits are not used, only
bytes and round trips. Runs that are there already are not made again, so it can be stopped.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import sync_table

BATCH = 4
MODEL = ["--model.hidden_size=96", "--model.num_hidden_layers=3", "--model.num_attention_heads=4",
         "--model.num_key_value_heads=2", "--data.vocab_size=1024", "--train.context=128",
         f"--train.batch_size={BATCH}", "--optim.lr=2e-3", "--optim.min_lr_ratio=0.02", "--optim.beta2=0.99",
         "--log.tensorboard=false", "--log.every=50", "--comm.check_every=100",
         "--device.threads=1", "--data.held_out=0.05"]

# Name, settings, and the sends that wait for each other in a step: with 20 ms one way each.
WAYS = {
    "plain, ZeRO 0": (["--dp.zero=0"], 2),
    "int8": (["--dp.zero=1", "--dp.compress=int8"], 2),
    "int4": (["--dp.zero=1", "--dp.compress=int4"], 2),
    "int8 + int4 weights": (["--dp.zero=1", "--dp.compress=int8", "--dp.compress_weights=int4"], 2),
    "int4 + int4 weights": (["--dp.zero=1", "--dp.compress=int4", "--dp.compress_weights=int4"], 2),
    "int4 without feedback": (["--dp.zero=1", "--dp.compress=int4",
                               "--dp.compress_feedback=false"], 2),
    "powersgd, rank 4": (["--dp.zero=0", "--dp.compress=powersgd"], 4),
    "powersgd, rank 16": (["--dp.zero=0", "--dp.compress=powersgd", "--dp.compress_rank=16"], 4),
    "onebit_adam": (["--dp.zero=0", "--dp.compress=onebit_adam"], 4),
    "zeroone_adam": (["--dp.zero=0", "--dp.compress=zeroone_adam"], 4),
}

LINKS = [("1 Gbit/s", 1e9, 0.0), ("100 Mbit/s", 1e8, 0.0), ("10 Mbit/s, 40 ms", 1e7, 0.040)]


def run(options, name, seed):
    directory = options.runs / f"{name.replace(' ', '-').replace(',', '')}-{seed}"
    log = directory / "metrics.jsonl"
    if not log.exists() or '"held_out_loss"' not in log.read_text():
        command = [options.atoll, "train", f"--run.dir={directory}", f"--data.text={options.text}",
                   f"-n{options.ranks}", f"--run.seed={seed}", f"--train.steps={options.steps}",
                   f"--train.micro_batch={BATCH // options.ranks}",
                   f"--optim.warmup_steps={options.steps // 20}", *MODEL, *WAYS[name][0]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    loss = [r["held_out_loss"] for r in records if "held_out_loss" in r][-1]
    # A record is the mean of the steps since the one before.
    steps, total = 0, 0.0
    for record in records:
        if "bytes_sent" in record and record["step"] > steps:
            total += record["bytes_sent"] * (record["step"] - steps)
            steps = record["step"]
    return loss, total / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--atoll", default="build/release/bin/atoll")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(WAYS))
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/compressed"))
    options = parser.parse_args()
    results = {}
    for seed in range(1, options.seeds + 1):
        for name in options.only:
            results.setdefault(name, []).append(run(options, name, seed))
            print(f"{name}, seed {seed}: {results[name][-1]}", file=sys.stderr, flush=True)
    sync_table.print_table(
        results, "plain, ZeRO 0", "sent", "over plain", LINKS, "ms",
        lambda way, sent, rate, trip: 1e3 * (8 * sent / rate + WAYS[way][1] * trip / 2))


if __name__ == "__main__":
    main()
