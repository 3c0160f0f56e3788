#!/usr/bin/env python3
"""Held-out loss of islands beside data parallel, run by run.

Each run is the real program: `atoll train` alone for data parallel, or a coordinator and as many
processes as there are islands, all on this machine. What it found is appended to a file of JSON
lines as it ends; runs that stand there are not run again. plan.py lists the runs, table.py shows
them.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import corpus
import plan

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MOST_SECONDS = 3600  # of one run


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", nargs="?", default="all", help="one of plan.py's groups, or all")
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/diloco")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of all islands")
    parser.add_argument("--runs", type=int, default=0, help="end after so many; 0: never")
    parser.add_argument("--seconds", type=float, default=0, help="begin none after; 0: never")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    parser.add_argument("--list", action="store_true", help="what is left to run, and no more")
    return parser.parse_args()


def results(work):
    path = work / "results.jsonl"
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def words(args, run, shards, directory):
    """The command line of one process."""
    batch = run.global_batch // max(1, run.islands)
    pairs = {"run.dir": directory, "run.seed": run.seed, "data.shards": json.dumps([str(shards)]),
             "train.steps": run.steps, "train.batch_size": batch, "train.micro_batch": batch,
             "device.threads": max(1, args.threads // max(1, run.islands)),
             **run.settings}
    if not run.scratch:
        pairs["model.from"] = args.work / "pretrained"
    return [args.atoll, "train", HERE / "common.toml",
            *(f"--{key}={value}" for key, value in pairs.items())]


def start(argv):
    return subprocess.Popen([str(word) for word in argv], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def wait_all(processes):
    """Waits for all, and ends them all if one fails."""
    deadline = time.monotonic() + MOST_SECONDS
    try:
        for process in processes:
            said = process.communicate(timeout=max(1, deadline - time.monotonic()))[1]
            if process.returncode != 0:
                raise SystemExit(f"{' '.join(process.args)}\n{said}")
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()


def train_islands(args, run, directory):
    """Returns the run directories of all islands."""
    order = start([args.atoll, "coordinator", "--dir", directory / "coordinator",
                   "--listen", "127.0.0.1:0"])
    address = re.search(r"coordinator at (\S+);", order.stderr.readline()).group(1)
    processes, directories = [], []
    for number in range(1, run.islands + 1):
        name = f"island-{number}"
        part = f"{run.private}-{number}-of-{run.islands}" if run.private else "all"
        directories.append(directory / name)
        processes.append(start([*words(args, run, args.work / "shards" / part, directory / name),
                                f"--island.coordinator={address}", f"--island.name={name}",
                                f"--outer.islands={run.islands}"]))
    wait_all([*processes, order])
    return directories


def outer_steps(directories):
    """How many outer steps there were, and which part of all hand-ins they had in time."""
    count = contributed = due = 0
    for directory in directories:
        with open(directory / "metrics.jsonl", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                if "outer_step" not in record:
                    continue
                count = max(count, record["outer_step"])
                contributed += record["outer_contributed"]
                due += 1
    return {"outer_steps": count, "contributed": contributed / due if due else 0}


def held_out(args, run_directory):
    said = subprocess.run([args.atoll, "eval", run_directory, "--text", args.work / "held.txt",
                           "--micro-batch", "8"], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"loss\s+([0-9.]+)", said).group(1))


def execute(args, run):
    directory = args.work / re.sub("[^a-z0-9]+", "-", run.name.lower())
    shutil.rmtree(directory, ignore_errors=True)
    began = time.monotonic()
    found = {"name": run.name, "islands": run.islands, "seed": run.seed, "steps": run.steps,
             "settings": run.settings}
    if run.islands == 0:
        wait_all([start(words(args, run, args.work / "shards/all", directory))])
        directories = [directory]
    else:
        directories = train_islands(args, run, directory)
        found |= outer_steps(directories)
    found["seconds"] = round(time.monotonic() - began, 1)
    found["loss"] = held_out(args, directories[0])
    if run == plan.PRETRAINED:
        subprocess.run([args.atoll, "export", directory, "--out", args.work / "pretrained"],
                       check=True, stdout=subprocess.DEVNULL)
    with open(args.work / "results.jsonl", "a", encoding="utf-8") as lines:
        lines.write(json.dumps(found) + "\n")
    shutil.rmtree(directory)
    print(json.dumps(found), flush=True)


def main():
    args = options()
    corpus.prepare(args.atoll, args.text, args.work, plan.PRIVATE)
    done = {result["name"] for result in results(args.work)}
    due = [run for run in plan.runs(args.group) if run.name not in done and args.only in run.name]
    if args.list:
        print("\n".join(run.name for run in due))
        return
    if args.runs:
        due = due[:args.runs]
    began = time.monotonic()

    def take(run):
        if not args.seconds or time.monotonic() - began < args.seconds:
            execute(args, run)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as jobs:
        list(jobs.map(take, due))


if __name__ == "__main__":
    main()
