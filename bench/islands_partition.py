#!/usr/bin/env python3
"""Cuts the link between islands, or to their coordinator, and says what it cost.

    sudo bench/islands_partition.py cut [--faults 12]
    sudo bench/islands_partition.py fetch [--mbit 400]

`cut`: two network namespaces with one link between them. On one side three islands' coordinator and
two of the islands, on the other the third; or the coordinator alone. tc drops what leaves one end of
the link, the other end, or both, for some seconds; connections stay and know nothing of it. `fetch`:
an island that joins late, over a limited link, and how fast the others' state comes to it. Needs
root and iproute2; takes everything away again.
"""

import argparse
import itertools
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import time

from exposed import HOSTS, Link, call
from islands_run import MODEL, ROOT, Island, Run, wait_until

FAR = 1  # the side that is cut off
WAYS = {"both ways": (0, 1), "to it": (0,), "from it": (1,)}  # whose end drops
LARGER = {"hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6,
          "num_key_value_heads": 6}


class Sides:
    """Who is on which side of a link, and their identities for TLS."""

    def __init__(self, args, link, work, far):
        self.link, self.far, self.authority = link, far, work / "authority"
        self.ports = {}
        make = [["init", self.authority]]
        for name in ("coordinator", *"abc"):
            make.append(["issue", self.authority, name, "--host", HOSTS[self.side(name)]])
        for words in make:
            subprocess.run([args.atoll, "certs", *map(str, words)], check=True,
                           capture_output=True)

    def side(self, name):
        return FAR if name == self.far else 0

    def prefix(self, name):
        return ("ip", "netns", "exec", self.link.names[self.side(name)])

    def coordinator(self):
        return ["--listen", f"{HOSTS[self.side('coordinator')]}:7411", "--identity",
                str(self.authority / "identities/coordinator")]

    def island(self, name):
        port = self.ports.setdefault(name, 7420 + len(self.ports))
        return [f"--island.listen={HOSTS[self.side(name)]}:{port}",
                f"--island.identity={self.authority / 'identities' / name}"]


def drop(link, ends):
    """Nothing larger than a byte leaves these ends: a bucket that no packet fits into."""
    for end in ends:
        call("tc", "-n", link.names[end], "qdisc", "add", "dev", link.ends[end], "root", "tbf",
             "rate", "8bit", "burst", "1", "limit", "1")


def heal(link):
    for name, end in zip(link.names, link.ends):
        subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", end, "root"], check=False,
                       stderr=subprocess.DEVNULL)


def one_run(args, link, far, ways):
    """A run with a fault of each way; what was found, and what was wrong at its end."""
    work = args.work / f"cut-{os.getpid()}-{next(args.numbers)}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    run = Run(args.atoll, work / "run", "abc", args.steps,
              ["--outer.grace_s=1", "--outer.inner_steps=100", "--checkpoint.every=200",
               "--log.every=1"], site=Sides(args, link, work, far))
    run.start()
    survivor, found = run.islands[0], []

    def all_take_part(after):
        some = [r for r in survivor.outer() if r["time"] > after]
        return some and some[-1]["outer_members"] == 3 and some[-1]["time"]
    try:
        wait_until(lambda: all_take_part(0), what="an outer step with all islands")
        for way in ways:
            time.sleep(random.uniform(0.5, 2))
            begin, lasts = time.time(), random.uniform(*args.lasts)
            drop(link, WAYS[way])
            cut = {"far": far, "way": way, "lasts": lasts, "steps": len(survivor.steps())}
            if far != "coordinator":
                cut["next_commit_s"] = wait_until(
                    lambda: next((r["time"] for r in survivor.outer() if r["time"] > begin + .05),
                                 None), what="the others' next commit") - begin
            time.sleep(max(0, begin + lasts - time.time()))
            cut["steps"] = len(survivor.steps()) - cut["steps"]
            heal(link)
            healed = time.time()
            cut["rejoined_s"] = wait_until(lambda: all_take_part(healed),
                                           what="an outer step with all") - healed
            found.append(cut)
            print(cut, flush=True)
        faults = run.end()
    finally:
        heal(link)
        run.stop()
    if not faults:
        shutil.rmtree(work)
    return found, faults


def cut(args):
    found, faults = [], []
    with Link() as link:
        while len(found) < args.faults:
            far = "coordinator" if len(found) % 6 >= 3 else "c"
            more, wrong = one_run(args, link, far, random.sample(list(WAYS), 3))
            found, faults = found + more, faults + wrong
    print("\n| cut off | dropped | cuts | the others' next commit, median, worst | healed until "
          "all take part, median, worst |\n|---|---|---|---|---|")
    for far, name in (("c", "one of three islands"), ("coordinator", "the coordinator")):
        for way in WAYS:
            own = [c for c in found if (c["far"], c["way"]) == (far, way)]
            if not own:
                continue
            cells = []
            for key in ("next_commit_s", "rejoined_s"):
                values = [c[key] for c in own if key in c]
                cells.append(f"{statistics.median(values):.2f}, {max(values):.2f} s"
                             if values else "")
            print(f"| {name} | {way} | {len(own)} | {' | '.join(cells)} |")
    print(f"\nnot as it should be: {faults or 'nothing'}")


def received(link):
    """Bytes that have come to the far side."""
    text = subprocess.run(["ip", "-n", link.names[FAR], "-s", "link", "show", link.ends[FAR]],
                          check=True, capture_output=True, text=True).stdout.splitlines()
    return int(text[next(i for i, line in enumerate(text) if "RX:" in line) + 1].split()[0])


def fetch(args):
    """How fast the state comes to an island that joins late, from a tenth of it to nine tenths."""
    work = args.work / f"fetch-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with Link() as link:
        run = Run(args.atoll, work / "run", "a", args.steps,
                  ["--outer.grace_s=5", f"--outer.inner_steps={args.steps // 8}",
                   "--log.every=1", "--outer.quorum=1"], site=Sides(args, link, work, "c"),
                  model=[*(word for word in MODEL if not word.startswith(tuple(
                      f"--model.{key}=" for key in LARGER))),
                      *(f"--model.{key}={value}" for key, value in LARGER.items())])
        run.islands.append(Island(run, "c", run.settings))
        first, late = run.islands
        try:
            first.start()
            wait_until(lambda: first.outer(), what="a first outer step")
            link.limit(args.mbit)
            seen, steps, begin = [(time.time(), received(link))], len(first.steps()), time.time()
            late.start()
            wait_until(lambda: seen.append((time.time(), received(link))) or late.steps(),
                       what="the late island's first step")
            lasted = time.time() - begin
            stalled = max((r["step_ms"] for r in first.steps()[steps:]), default=0)
            median = statistics.median(r["step_ms"] for r in first.steps())
        finally:
            run.stop()
    total = seen[-1][1] - seen[0][1]
    inside = [(t, b - seen[0][1]) for t, b in seen if .1 * total < b - seen[0][1] < .9 * total]
    rate = (inside[-1][1] - inside[0][1]) * 8e-6 / (inside[-1][0] - inside[0][0])
    print(f"{total / 1e6:.0f} MB at {rate:.0f} of {args.mbit} Mbit/s, "
          f"{100 * rate / args.mbit:.1f}%; {lasted:.1f} s from its start to its first step (the wire alone: "
          f"{total * 8e-6 / args.mbit:.1f} s); the other one's steps meanwhile: worst {stalled:.0f}"
          f" ms, median of all {median:.0f} ms")
    shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["cut", "fetch"])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/islands-partition")
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--lasts", type=float, nargs=2, default=[2, 12], help="seconds of a cut")
    parser.add_argument("--steps", type=int, default=12000, help="of an island, in a run")
    parser.add_argument("--mbit", type=int, default=400)
    args = parser.parse_args()
    args.numbers = itertools.count(1)
    globals()[args.what](args)


if __name__ == "__main__":
    main()
