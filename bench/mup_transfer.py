#!/usr/bin/env python3
"""The best learning rate at each width, with muP and in the standard parametrisation.

    nice python3 bench/mup_transfer.py build/release/bin/atoll --work /tmp/mup --seeds 3

Trains a recipe (bench/mup_transfer.toml) for each parametrisation, width, learning rate and seed, and prints the mean
held-out loss of each. What has been trained stays in --work: the same command goes on, with more seeds or widths too.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import subprocess


def run(arguments, parametrisation, width, rate, seed):
    name = f"{parametrisation}-{width}-{rate:g}-{seed}"
    done = arguments.work / f"{name}.json"
    if done.exists():
        return json.loads(done.read_text())
    words = [arguments.atoll, "train", arguments.recipe, f"--run.dir={arguments.work / name}", f"--run.seed={seed}"]
    words += [f"--model.hidden_size={width}", f"--optim.lr={rate!r}", f"--train.steps={arguments.steps}"]
    words += ["--device.threads=1", "--log.tensorboard=false", f"--data.shards={arguments.work / 'shards'}"]
    if parametrisation == "mup":
        words += ["--model.parametrisation=mup", f"--model.mup_base_width={arguments.base}"]
        words += [f"--model.mup_base_head_dim={arguments.base // arguments.heads}"]
    finished = subprocess.run(words, capture_output=True, text=True)
    losses = []
    metrics = arguments.work / name / "metrics.jsonl"
    for line in metrics.read_text().splitlines() if metrics.exists() else []:
        losses += [json.loads(line)["held_out_loss"]] if "held_out_loss" in line else []
    if finished.returncode == 2:
        raise SystemExit(finished.stderr)
    loss = losses[-1] if finished.returncode == 0 and losses else math.inf
    done.write_text(json.dumps(loss))
    subprocess.run(["rm", "-rf", str(arguments.work / name)], check=True)
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--recipe", default="bench/mup_transfer.toml")
    parser.add_argument("--text", default="runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--widths", default="64,128,256,512")
    parser.add_argument("--rates", default="-11,-10,-9,-8,-7,-6,-5,-4", help="powers of 2")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--base", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4, help="of the recipe")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not (arguments.work / "shards").exists():
        words = [arguments.atoll, "tokenize", arguments.text, "--out", str(arguments.work / "shards"), "--vocab-size", "512"]
        subprocess.run(words + ["--held-out", "0.05"], check=True, stdout=subprocess.DEVNULL)
    widths = [int(width) for width in arguments.widths.split(",")]
    rates = [2.0 ** int(power) for power in arguments.rates.split(",")]
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
        for parametrisation in ("mup", "standard"):
            print(f"\n{parametrisation}: held-out loss, mean of {arguments.seeds} seeds\n")
            print("| learning rate | " + " | ".join(f"width {width}" for width in widths) + " |")
            print("|---" * (len(widths) + 1) + "|")
            means = {}
            for rate in rates:
                jobs = [
                    [pool.submit(run, arguments, parametrisation, width, rate, seed) for seed in range(1, arguments.seeds + 1)]
                    for width in widths
                ]
                for width, of_width in zip(widths, jobs):
                    means[width, rate] = sum(job.result() for job in of_width) / arguments.seeds
                cells = " | ".join(f"{means[width, rate]:.3f}" for width in widths)
                print(f"| 2^{round(math.log2(rate))} | {cells} |", flush=True)
            best = [min(rates, key=lambda rate: means[width, rate]) for width in widths]
            print("| best | " + " | ".join(f"2^{round(math.log2(rate))}" for rate in best) + " |", flush=True)


if __name__ == "__main__":
    main()
