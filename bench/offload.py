#!/usr/bin/env python3
"""The speed of training with state in a file, over that in memory, and what the disk gives.

    bench/offload.py [gpt2-b4-t256] [--dir DIRECTORY] [--rounds 3] [--steps 4] [--limit-mib 0]

A round is a step benchmark in memory, one with the optimizer's state in a file, and one with all of
it there, so that all meet the same machine; the ratio of two is taken within a round, and of the
rounds the median counts. After each run with a file a plain program writes and reads a file of that
directory past the page cache, so that a disk with a quota shows what it gives then: what moves in
a step, at that rate, is what the disk alone takes. --limit-mib puts the runs with files into a cgroup with that much
memory (root only): what the page cache could keep is then gone too.
"""

import argparse
import json
import mmap
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
from step_shapes import SHAPES  # noqa: E402

# Vectors of one number for each parameter that a step of one micro-batch reads, and writes.
MOVED = {"optimizer in a file": (2, 2), "all in a file": (2 + 4, 1 + 3)}
PLACES = {"memory": [], "optimizer in a file": ["--offload.optimizer=file"],
          "all in a file": ["--offload.optimizer=file", "--offload.params=file"]}
CHUNK = 4 << 20


def disk_bandwidth(directory, total=512 << 20):
    """GB/s of writing and of reading past the page cache, in the chunks that a step moves."""
    path = directory / f"bandwidth-{os.getpid()}"
    memory = mmap.mmap(-1, CHUNK)
    memory.write(os.urandom(CHUNK))
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    path.unlink()
    os.posix_fallocate(file, 0, total)
    rates = []
    for move in (os.pwritev, os.pwritev, os.preadv):  # the first write makes the blocks
        start = time.perf_counter()
        for at in range(0, total, CHUNK):
            move(file, [memory], at)
        rates.append(total / (time.perf_counter() - start) / 1e9)
    os.close(file)
    return rates[1], rates[2]


class Cgroup:
    """Memory for the processes that join it."""

    def __init__(self, mib):
        self.path = None
        if mib == 0:
            return
        for parent, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                              ("/sys/fs/cgroup", "memory.max")):
            path = pathlib.Path(parent) / f"atoll-bench-{os.getpid()}"
            if (pathlib.Path(parent) / "cgroup.procs").exists():
                path.mkdir()
                (path / limit).write_text(str(mib << 20))
                self.path = path
                return
        sys.exit("no cgroup can be made here; leave --limit-mib out")

    def join(self):
        if self.path is not None:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.path is not None:
            self.path.rmdir()


def step_seconds(args, shape, place, cgroup):
    words = [args.build / "bin/atoll", "bench", "step", *shape.settings(), *args.settings,
             *PLACES[place], "--steps", str(args.steps), "--warmup", "1", "--json"]
    if place != "memory":
        words.append(f"--offload.dir={args.dir}")
    said = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT,
                          preexec_fn=None if place == "memory" else cgroup.join).stdout
    return statistics.median(json.loads(said)["step_seconds"])


def planned(args, shape, place):
    """MiB in memory and in the file."""
    words = [args.build / "bin/atoll", "plan", *shape.settings(), *args.settings, *PLACES[place],
             f"--run.dir={args.dir}"]
    said = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    totals = [float(total) for total in re.findall(r"^  total +([0-9.]+) MiB", said, re.M)]
    return totals[0], totals[1] if len(totals) > 1 else 0.0


def listed(numbers, form="{:.2f}"):
    return ", ".join(form.format(number) for number in numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", nargs="?", default="gpt2-b4-t256", choices=list(SHAPES))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--limit-mib", type=int, default=0)
    parser.add_argument("--set", dest="settings", action="append", default=[],
                        help="a setting of all runs, as --set=--train.recompute=full")
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    memory = {place: planned(args, shape, place) for place in PLACES}
    seconds = {place: [] for place in PLACES}
    disk = {place: [] for place in MOVED}
    cgroup = Cgroup(args.limit_mib)
    try:
        for _ in range(args.rounds):
            for place in PLACES:
                seconds[place].append(step_seconds(args, shape, place, cgroup))
                print(f"{place}: {seconds[place][-1]:.2f} s", file=sys.stderr, flush=True)
                if place in MOVED:
                    disk[place].append(disk_bandwidth(args.dir))
    finally:
        cgroup.remove()
    vector = memory["optimizer in a file"][1] / 2 * 2**20 / 1e9  # GB
    print("| state | in memory, MiB | in the file, MiB | a step, s | speed over memory, round by "
          "round | median | GB read, written a step | disk after it: write, read, GB/s | the disk "
          "alone, s |\n|---|---|---|---|---|---|---|---|---|")
    for place in PLACES:
        ratios = [base / own for base, own in zip(seconds["memory"], seconds[place])]
        line = (f"| {place} | {memory[place][0]:.0f} | {memory[place][1]:.0f} | "
                f"{listed(seconds[place])} | {listed(ratios)} | {statistics.median(ratios):.2f} |")
        if place not in MOVED:
            print(line + " | | |")
            continue
        read, written = (count * vector for count in MOVED[place])
        rates = "; ".join(f"{write:.2f}, {back:.2f}" for write, back in disk[place])
        alone = [written / write + read / back for write, back in disk[place]]
        print(f"{line} {read:.2f}, {written:.2f} | {rates} | {listed(alone)} |")


if __name__ == "__main__":
    main()
