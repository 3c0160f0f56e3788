#!/usr/bin/env python3
"""Which way to sync: loss at equal tokens, bytes, and time over slow links, of every way.

    bench/which_sync.py TEXT [--atoll build/release/bin/atoll] [--workers 4] [--steps 400] [--seeds 3]
                        [--width 96] [--blocks 3] [--vocab 1024] [--only WAY ...] [--runs DIR]

Trains one model once for each way and seed, one thread a worker, and prints a table: held-out loss
beside all-reduce with the same seed, what a worker sends and receives in a step, and how long the
exchanges of the run take over links. Ranks count their bytes themselves; a worker of servers pushes a
gradient and pulls the values, four bytes for each parameter and way. The times are computed:
compute() below says how. Computing is not in them. Runs that are there already are not made again, so
it can be stopped and started again with more ways.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys

import sync_table

BATCH, CONTEXT, SERVERS, PERIOD = 8, 128, 2, 10

PS = ["--sync.mode=ps", f"--sync.servers={SERVERS}"]
# Name, settings, and how many times a step waits for half a round trip.
WAYS = {
    "all-reduce": ([], 2),
    "1-bit Adam": (["--dp.compress=onebit_adam"], 4),
    "0/1 Adam": (["--dp.compress=zeroone_adam"], 4),
    "servers, bsp": (PS, 6),
    "servers, ssp s = 3": (PS + ["--sync.consistency=ssp", "--sync.staleness=3"], 4),
    "servers, async": (PS + ["--sync.consistency=async"], 4),
    f"servers, easgd every {PERIOD}": (PS + ["--sync.consistency=easgd", f"--sync.period={PERIOD}"],
                                       4 / PERIOD),
    "int8 + int4 weights": (["--dp.zero=1", "--dp.compress=int8", "--dp.compress_weights=int4"], 2),
    "int4 + int4 weights": (["--dp.zero=1", "--dp.compress=int4", "--dp.compress_weights=int4"], 2),
    "PowerSGD, rank 4": (["--dp.compress=powersgd"], 4),
    "PowerSGD, rank 16": (["--dp.compress=powersgd", "--dp.compress_rank=16"], 4),
}

LINKS = [("1 Gbit/s", 1e9, 0.0), ("100 Mbit/s", 1e8, 0.0), ("10 Mbit/s, 40 ms", 1e7, 0.040)]


def records_of(directory):
    log = directory / "metrics.jsonl"
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines()]


def run(options, way, seed):
    """Returns the held-out loss, bytes that a worker sends in a step, and the parameters."""
    name = "".join(c if c.isalnum() else "-" for c in way)
    directory = options.runs / f"{name}-{seed}"
    if not any("held_out_loss" in r for r in records_of(directory)):
        command = [options.atoll, "train", f"--run.dir={directory}", f"--data.text={options.text}",
                   f"-n{options.workers}", f"--run.seed={seed}", f"--train.steps={options.steps}",
                   f"--train.context={CONTEXT}", f"--train.batch_size={BATCH}",
                   f"--train.micro_batch={BATCH // options.workers}",
                   f"--model.hidden_size={options.width}",
                   f"--model.num_hidden_layers={options.blocks}", "--model.num_attention_heads=4",
                   "--model.num_key_value_heads=2", f"--data.vocab_size={options.vocab}",
                   "--data.held_out=0.05", "--optim.lr=2e-3", "--optim.min_lr_ratio=0.02",
                   "--optim.beta2=0.99", f"--optim.warmup_steps={options.steps // 20}",
                   "--log.tensorboard=false", "--log.every=50", "--comm.check_every=100",
                   "--device.threads=1", *WAYS[way][0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
    records = records_of(directory)
    loss = [r["held_out_loss"] for r in records if "held_out_loss" in r][-1]
    parameters = parameters_of(max((directory / "checkpoints").glob("step-*")))
    # A record is the mean of the steps since the one before.
    steps, total = 0, 0.0
    for record in records:
        if "bytes_sent" in record and record["step"] > steps:
            total += record["bytes_sent"] * (record["step"] - steps)
            steps = record["step"]
    if steps:
        return loss, total / steps, parameters
    every = PERIOD if "easgd" in way else 1
    return loss, 4 * parameters / every, parameters


def parameters_of(checkpoint):
    """How many parameters a checkpoint's model has."""
    count = 0
    for path in checkpoint.glob("model*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        count += sum(math.prod(tensor["shape"]) for name, tensor in header.items()
                     if name != "__metadata__")
    return count


def compute(way, sent, rate, round_trip, workers):
    """Seconds of the exchanges of a step. Links are full duplex. A rank sends and receives as much at
    the same time. A worker pushes, and then pulls; each of SERVERS servers, on machines of their own,
    has the part of all workers' bytes that its slices are."""
    waits = WAYS[way][1] * round_trip / 2
    if "servers" not in way:
        return 8 * sent / rate + waits
    busiest = max(sent, workers * sent / SERVERS)
    return 2 * 8 * busiest / rate + waits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--atoll", default="build/release/bin/atoll")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--only", nargs="*", default=list(WAYS))
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/which-sync"))
    options = parser.parse_args()
    found = {way: [] for way in options.only}
    for seed in range(1, options.seeds + 1):
        for way in options.only:
            found[way].append(run(options, way, seed))
            print(f"{way}, seed {seed}: {found[way][-1]}", file=sys.stderr, flush=True)
    sync_table.print_table(
        found, "all-reduce", "way", "beside all-reduce", LINKS, "s",
        lambda way, sent, rate, trip:
        options.steps * compute(way, sent, rate, trip, options.workers))


if __name__ == "__main__":
    main()
