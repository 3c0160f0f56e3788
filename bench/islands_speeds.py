#!/usr/bin/env python3
"""Held-out loss of two islands of which one is three times as fast, by several atolls.

    bench/islands_speeds.py --atoll before=PATH --atoll after=PATH --text TEXT

Each island is a process with one thread. The slow one is stopped (SIGSTOP, a tenth of a second at a
time) while it has taken more than a third of the fast one's steps, so that what else the machine
does changes little. Builds take turns within a seed. Losses are compared, times are not.
"""

import argparse
import pathlib
import shutil
import signal
import statistics
import threading
import time

from islands_run import ROOT, Run, wait_until

MODEL = ["--model.hidden_size=64", "--model.num_hidden_layers=2", "--model.num_attention_heads=4",
         "--model.num_key_value_heads=2", "--data.vocab_size=512", "--data.held_out=0.05",
         "--train.batch_size=4", "--train.micro_batch=4", "--train.context=128",
         "--device.threads=1", "--log.tensorboard=false", "--log.every=1",
         "--checkpoint.every=1000000", "--optim.lr=0.003", "--optim.schedule=cosine",
         "--optim.min_lr_ratio=0.02", "--optim.warmup_steps=20", "--outer.lr=0.5",
         "--outer.momentum=0.7", "--outer.grace_s=20"]


class Throttle:
    """Holds a process back until another one has taken so many times its steps."""

    def __init__(self, slow, fast, speed):
        self.slow, self.fast, self.speed = slow, fast, speed
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._go)
        self.thread.start()

    def _go(self):
        while not self.over.is_set() and self.slow.is_up():
            if len(self.slow.steps()) * self.speed > len(self.fast.steps()):
                # Not for good: the fast one waits for the slow one at the end of a round.
                self.slow.child.send_signal(signal.SIGSTOP)
                time.sleep(0.1)
                self.slow.child.send_signal(signal.SIGCONT)
            time.sleep(0.005)

    def end(self):
        self.over.set()
        self.thread.join()


def last(island, name):
    return [record[name] for record in island.records() if name in record][-1]


def measure(args, name, atoll, seed):
    """One run: steps, last learning rates, loss."""
    work = args.work / f"{name}-{seed}"
    shutil.rmtree(work, ignore_errors=True)
    run = Run(atoll, work, ["fast", "slow"], args.steps,
              [f"--outer.inner_steps={args.inner_steps}", f"--run.seed={seed}", *args.settings],
              model=MODEL, text=args.text.resolve())
    throttle = None
    try:
        run.start()
        if args.speed > 1:
            throttle = Throttle(run.islands[1], run.islands[0], args.speed)
        wait_until(lambda: not any(island.is_up() for island in run.islands), 900, "the end")
        if throttle:
            throttle.end()
        faults = run.end()
    finally:
        if throttle:
            throttle.end()
        run.stop()
    if faults:
        raise SystemExit(f"{work}: {faults}")
    fast, slow = run.islands
    steps = [len(island.steps()) for island in run.islands]
    rates = [last(island, "lr") for island in run.islands]
    least = [sum(record["lr"] <= 0.00006001 for record in island.steps())
             for island in run.islands]
    loss = last(fast, "held_out_loss")
    print(f"| {name} | {seed} | {steps[0]} / {steps[1]} | {rates[0]:.2e} / {rates[1]:.2e} | "
          f"{least[0]} / {least[1]} | {loss:.4f} |", flush=True)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", action="append", help="NAME=PATH")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/islands-speeds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--inner-steps", type=int, default=20)
    parser.add_argument("--speed", type=float, default=3, help="of the fast one over the slow one")
    parser.add_argument("settings", nargs="*", help="of all islands, after --")
    args = parser.parse_args()
    atolls = dict(entry.split("=", 1) for entry in args.atoll or
                  [f"atoll={ROOT / 'build/release/bin/atoll'}"])
    print("| build | seed | steps, fast / slow | last learning rate, fast / slow | steps at the "
          "least rate, fast / slow | held-out loss |\n|---|---|---|---|---|---|", flush=True)
    losses = {name: [] for name in atolls}
    for seed in args.seeds:
        for name, atoll in atolls.items():
            losses[name].append(measure(args, name, atoll, seed))
    for name, values in losses.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0
        print(f"{name}: mean {statistics.mean(values):.4f}, standard deviation {spread:.4f}")


if __name__ == "__main__":
    main()
