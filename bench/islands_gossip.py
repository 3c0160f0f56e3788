#!/usr/bin/env python3
"""Held-out loss of islands that gossip beside islands that exchange with all.

    bench/islands_gossip.py --text TEXT --seeds 1 2 3

Each island is a process with one thread. All wait for all, so that nothing depends on the machine.
The same batches, inner steps and outer optimizer; what differs is the algorithm, and H so that either
inner steps between exchanges or bytes are the same. Losses and bytes are compared, times are not.
"""

import argparse
import pathlib
import shutil
import statistics

from islands_run import ROOT, Run
from islands_speeds import MODEL

# diloco sends 8 (n - 1) / n bytes of a parameter in f32, gossip 8: anchor and momentum.
KINDS = (("diloco", 10), ("gossip", 10), ("diloco", 15), ("gossip", 20))


def measure(args, algorithm, inner_steps, seed):
    """One run: loss, MB that an island sent, and how far partners were apart at the second outer step and the last."""
    work = args.work / f"{algorithm}-{inner_steps}-{seed}"
    shutil.rmtree(work, ignore_errors=True)
    names = [f"island-{number}" for number in range(1, args.islands + 1)]
    run = Run(args.atoll, work, names, args.steps,
              [f"--outer.algorithm={algorithm}", f"--outer.inner_steps={inner_steps}",
               f"--outer.quorum={args.islands}", "--outer.grace_s=600", f"--run.seed={seed}",
               "--train.batch_size=1", "--train.micro_batch=1", *args.settings],
              model=[word for word in MODEL if "batch" not in word and "grace" not in word],
              text=args.text.resolve())
    try:
        run.start()
        faults = run.end(3600)
    finally:
        run.stop()
    if faults:
        raise SystemExit(f"{work}: {faults}")
    one = run.islands[0]
    loss = [record["held_out_loss"] for record in one.records() if "held_out_loss" in record][-1]
    outer = one.outer()
    sent = sum(record["outer_sent_bytes"] for record in outer) / 1e6
    spreads = [record["outer_spread"] for record in outer if record.get("outer_spread")]
    apart = f"{spreads[1]:.4f}, {spreads[-1]:.4f}" if len(spreads) > 1 else ""
    print(f"| {algorithm}, H = {inner_steps} | {seed} | {len(outer)} | {sent:.2f} | {apart} | "
          f"{loss:.4f} |", flush=True)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/islands-gossip")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--islands", type=int, default=4)
    parser.add_argument("--steps", type=int, default=240, help="of an island")
    parser.add_argument("settings", nargs="*", help="of all islands, after --")
    args = parser.parse_args()
    print("| run | seed | outer steps | MB an island sent | partners apart, second and last | "
          "held-out loss |\n|---|---|---|---|---|---|", flush=True)
    losses = {kind: [] for kind in KINDS}
    for seed in args.seeds:
        for kind in KINDS:
            losses[kind].append(measure(args, *kind, seed))
    for (algorithm, inner_steps), values in losses.items():
        print(f"{algorithm}, H = {inner_steps}: mean {statistics.mean(values):.4f}")


if __name__ == "__main__":
    main()
