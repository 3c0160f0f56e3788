#!/usr/bin/env python3
"""How well `atoll plan --ranks` predicts: memory and step time of layouts, against runs of them.

    bench/planner.py --text book.txt [--rounds 3] [--layouts 12]

Each round measures the machine's figures anew and then runs every layout once, so that both see the
same neighbours; of the rounds the least is taken, on both sides, because others may use the machine.
Layouts are spread over the planner's table for 2 and for 4 ranks: its first, its last, and
between them one of each kind.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

MODEL = ["--model.hidden_size=256", "--model.num_hidden_layers=6", "--model.num_attention_heads=8",
         "--model.num_key_value_heads=4", "--model.intermediate_size=704", "--data.vocab_size=2048",
         "--train.context=256", "--train.batch_size=8", "--eval.every=0", "--data.held_out=0",
         "--log.every=1", "--log.tensorboard=false", "--comm.check_every=0"]


def command(args, *more):
    done = subprocess.run([args.atoll, *map(str, more)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{more}: {done.stderr}")
    return done.stdout + done.stderr


def table(args, work, ranks, figures):
    """The planner's layouts of so many ranks, by their arguments."""
    out = command(args, "plan", f"--ranks={ranks}", f"--figures={figures}", "--json", "--rows=10000",
                  f"--run.dir={work / 'plan'}", f"--data.shards={work / 'corpus'}",
                  *[m for m in MODEL if not m.startswith("--data.")])
    return json.loads(out)["layouts"]


def measure(args, work, ranks, figures):
    command(args, "plan", f"--ranks={ranks}", f"--write-figures={figures}", "--rows=1",
            f"--run.dir={work / 'plan'}", f"--data.shards={work / 'corpus'}",
            *[m for m in MODEL if not m.startswith("--data.")])


def kind(row):
    return row["dp"], row["tp"], row["pp"], row["cp"], row["ep"], row["zero"] > 0, row["recompute"] != "none"


def spread(rows, count):
    """The first, then the best of each kind, evenly over the table."""
    kinds = {}
    for row in rows:
        kinds.setdefault(kind(row), row)
    best = list(kinds.values())
    if len(best) <= count:
        return best
    return [best[round(i * (len(best) - 1) / (count - 1))] for i in range(count)]


def run(args, work, ranks, row):
    """Median step of one run, in seconds, and the memory that its largest rank planned, in MiB."""
    with tempfile.TemporaryDirectory(dir=work) as directory:
        out = command(args, "train", f"--run.dir={directory}", f"--data.shards={work / 'corpus'}",
                      *[m for m in MODEL if not m.startswith("--data.")], "-n", ranks,
                      f"--train.steps={args.steps}", *row["arguments"])
        lines = [json.loads(line) for line in
                 (pathlib.Path(directory) / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step_ms"] / 1e3 for line in lines if "step_ms" in line][2:]
    planned = re.search(r"memory at most ([0-9.]+) MiB|planned memory ([0-9.]+) MiB", out)
    return statistics.median(steps), float(planned[1] or planned[2])


def name(row):
    pipeline = f"pp {row['pp']} {row['schedule']}" if row["pp"] > 1 else "pp 1"
    return (f"dp {row['dp']}, tp {row['tp']}, {pipeline}, cp {row['cp']}, ep {row['ep']}, ZeRO {row['zero']}, {row['recompute']}, "
            f"micro-batch {row['micro_batch']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atoll", default="build/release/bin/atoll")
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layouts", type=int, default=6, help="for each number of ranks")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atoll-planner-") as directory:
        work = pathlib.Path(directory)
        command(args, "tokenize", args.text, "--out", work / "corpus", "--vocab-size", 2048,
                "--held-out", 0)
        for ranks in (2, 4):
            chosen, planned, measured, memory = [], {}, {}, {}
            for number in range(args.rounds):
                figures = work / f"figures{ranks}-{number}.toml"
                measure(args, work, ranks, figures)
                rows = table(args, work, ranks, figures)
                chosen = chosen or spread(rows, args.layouts)
                for row in chosen:
                    now = next(r for r in rows if r["arguments"] == row["arguments"])
                    planned.setdefault(name(row), []).append(now["step_seconds"])
                    seconds, mib = run(args, work, ranks, row)
                    measured.setdefault(name(row), []).append(seconds)
                    memory[name(row)] = (now["memory_bytes"] / 2**20, mib)
            print(f"\n{ranks} ranks, {args.rounds} rounds\n")
            print("| layout | planned MiB | of the run | planned ms | measured ms | off |")
            print("|---|---|---|---|---|---|")
            for layout, times in measured.items():
                ours, real = min(planned[layout]), min(times)
                print(f"| {layout} | {memory[layout][0]:.1f} | {memory[layout][1]:.1f} | "
                      f"{1e3 * ours:.0f} | {1e3 * real:.0f} | {100 * (ours / real - 1):+.0f}% |",
                      flush=True)
            first = min(measured[name(chosen[0])])
            best = min(min(times) for times in measured.values())
            print(f"\nthe planner's first is {100 * (first / best - 1):.1f}% slower than the best")


if __name__ == "__main__":
    main()
