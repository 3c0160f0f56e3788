#!/usr/bin/env python3
"""From the start of `atoll train` on a checkpoint of GPT-2 124M to the end of its first step.

    python3 bench/start.py --dir /tmp --rounds 3

Makes a text and a checkpoint with AdamW's state (1.5 GB) in a directory of its own, goes on from it
in each round with a single step of 64 tokens, and removes it all. `warm`: the files are in the page
cache, as after a save; `cold`: they were dropped from it. The time is that between the call and
the first step in metrics.jsonl, so that starting the program, reading and verifying the checkpoint and the
step are in it, and the checkpoint at the end is not.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = {"train.context": 64, "train.batch_size": 1, "train.micro_batch": 1,
            "train.recompute": "none", "data.held_out": 0, "eval.every": 0, "log.tensorboard": "false",
            "checkpoint.keep": 1, "optim.warmup_steps": 0,
            "device.threads": 2}


def write_text(path):
    """With words enough for a vocabulary of 50,257."""
    generator = random.Random(1)
    words = ["".join(generator.choices("etaoinshrdlucmfwypvbgkjqxz", k=generator.randint(4, 9)))
             for _ in range(80_000)]
    path.write_text(" ".join(words * 3), encoding="utf-8")


def train(args, work, steps):
    """Seconds to the end of the first step, and those of the step itself."""
    began = time.time()
    done = subprocess.run(
        [str(args.atoll), "train", "recipes/gpt2-124m.toml", f"--run.dir={work / 'run'}",
         f"--data.text={work / 'text.txt'}", f"--train.steps={steps}", f"--checkpoint.every={steps}",
         *(f"--{key}={value}" for key, value in SETTINGS.items())],
        cwd=ROOT, check=False, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"atoll ended with {done.returncode}:\n{done.stderr}")
    lines = (work / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    first = next(record for record in map(json.loads, lines)
                 if record["time"] > began and "step_ms" in record)
    return first["time"] - began, first["step_ms"] / 1e3


def drop(directory):
    """From the page cache, whatever is not being written."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--dir", type=pathlib.Path, help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-start-", dir=args.dir)).resolve()
    try:
        write_text(work / "text.txt")
        train(args, work, 1)
        size = sum(path.stat().st_size for path in (work / "run/checkpoints").rglob("*") if path.is_file())
        print(f"checkpoint of {size / 1e6:,.0f} MB, {args.rounds} rounds\n")
        print("| page cache | start to the end of the first step, s | median | the step of it, s |")
        print("|---|---|---|---|")
        found = {"warm": [], "cold": []}
        for number in range(args.rounds):
            for kind, times in found.items():
                if kind == "cold":
                    drop(work / "run")
                times.append(train(args, work, 2 + 2 * number + (kind == "cold")))
        for kind, times in found.items():
            print(f"| {kind} | {', '.join(f'{total:.2f}' for total, _ in times)} | "
                  f"{statistics.median(total for total, _ in times):.2f} | "
                  f"{statistics.median(step for _, step in times):.2f} |")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
