#!/usr/bin/env python3
"""Islands under a fault every few seconds, for minutes: nothing may be lost, doubled or diverge.

    tests/e2e/soak.py build/release/bin/atoll [--seconds 300] [--every 10] [--islands 4] [--seed 1]
        [--run-seconds 60] [--algorithms diloco eager streaming] [--behind-nat]

What `./dev soak` runs. Runs of a minute or so follow each other, with the real programs: islands
are killed, stopped, cut off from the rest, leave and come back, another one comes and goes, and the
coordinator is killed. At the end of each run its ledger must prove that every batch was committed
once, and all islands must have the same model. The seed says which faults come in which order.
Goodput is the steps a second that were committed, of those of a run that nothing disturbs.
"""

import argparse
import itertools
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from islands_run import Island, Run, wait_until  # noqa: E402

A_ROUND = 4  # seconds
UNDISTURBED = 20  # seconds of a run to compare with
ALGORITHMS = ("diloco", "eager", "streaming")
# An island that was away longer than this may be out of the run; no fault here lasts as long.
OUT_AFTER = 30
# Suspicion that comes so long after a fault's end is still of it.
AFTERMATH = 6


class Soak:
    """One run, and what was done to it."""

    def __init__(self, args, work, steps, inner_steps, algorithm):
        self.args = args
        names = [f"island-{i + 1}" for i in range(args.islands)]
        settings = [f"--outer.inner_steps={inner_steps}", "--outer.grace_s=1",
                    f"--checkpoint.every={inner_steps // 4}", f"--outer.algorithm={algorithm}",
                    f"--outer.quorum={args.islands // 2}", "--log.every=1000"]
        if algorithm == "streaming":
            settings += ["--outer.fragments=2", f"--outer.overlap={inner_steps // 4}",
                         "--outer.codec=e3m0"]
        self.run = Run(args.atoll, work, names, steps, settings, is_cut=True,
                       is_behind_nat=args.behind_nat)
        self.steps, self.faults, self.guest = steps, [], None
        self.run.start()

    def share_done(self):
        tokens = sum(record["outer_tokens"] for record in self.seen())
        return tokens / (self.steps * 2 * 128 * self.args.islands)

    def seen(self):
        """Of the island that has seen most outer steps."""
        return max((island.outer() for island in self.run.islands), key=len)

    def rate(self):
        """Steps of an island in a second, from one outer step to another."""
        outer = self.seen()
        tokens = sum(record["outer_tokens"] for record in outer[1:])
        return tokens / (2 * 128 * self.args.islands) / (outer[-1]["time"] - outer[0]["time"])

    def away(self, island, what, seconds):
        self.faults.append((time.time(), time.time() + seconds, island.name, what))

    # The faults. Each takes as long as it takes, and leaves all as it was.

    def kill(self, island):
        pause = random.choice((0, 0, random.uniform(0, 3)))
        self.away(island, "killed", pause + 2)
        island.kill()
        time.sleep(pause)
        island.start()

    def stop(self, island):
        seconds = random.uniform(0.5, 6)
        self.away(island, "stopped", seconds)
        island.child.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        island.child.send_signal(signal.SIGCONT)
        island.stopped += seconds

    def cut(self, island):
        seconds = random.uniform(0.5, 6)
        self.away(island, "cut off", seconds)
        island.cut(True)
        time.sleep(seconds)
        island.cut(False)

    def leave(self, island):
        seconds = random.uniform(0.2, 2)
        self.away(island, "left", seconds + 2)
        island.kill(signal.SIGTERM)
        time.sleep(seconds)
        island.start()

    def visit(self, _):
        guest = Island(self.run, "guest", self.run.settings)
        guest.start()
        time.sleep(random.uniform(3, 6))
        self.away(guest, "left", 2)
        code = guest.kill(signal.SIGTERM)
        is_over = code == 0 and self.share_done() > 0.8  # the run has ended first
        if code != 128 + signal.SIGTERM and not is_over:
            raise SystemExit(f"the guest ended with {code}: {guest.lines()[-2:]}")

    def kill_coordinator(self, _):
        for island in self.run.islands:
            self.away(island, "without a coordinator", 4)
        self.run.coordinator.kill()
        time.sleep(random.choice((0, random.uniform(0, 2))))
        self.run.coordinator.start()

    def go(self, seconds):
        kinds = itertools.cycle(random.sample(KINDS, len(KINDS)))
        begin, done = time.time(), []
        while True:
            until = time.time() + self.args.every
            if not self.wait(until) or time.time() - begin > 3 * seconds:
                break
            kind = next(kinds)
            island = random.choice(self.run.islands)
            done.append(f"{kind} {island.name}" if kind in OF_ISLANDS else kind)
            getattr(self, kind)(island)
        return done

    def wait(self, until):
        """False when the run is so near its end that who is away would miss it."""
        while time.time() < until:
            if self.share_done() > 0.8:
                return False
            self.run.check()
            time.sleep(0.1)
        return True

    def false_alarms(self, lines):
        """Suspicion and evictions for which nothing was done. (`lines`: when, what)"""
        alarms = []
        for when, line in lines:
            name = line.split(" is ")[0].split()[-1]
            is_out = line.endswith(" is out")
            if not is_out and "is suspected" not in line:
                continue
            was_away = any(who == name and begin <= when <= end + AFTERMATH and
                           (not is_out or end - begin > OUT_AFTER)
                           for begin, end, who, _ in self.faults)
            if not was_away:
                alarms.append(line)
        return alarms


OF_ISLANDS = ["kill", "stop", "cut", "leave"]
KINDS = [*OF_ISLANDS, "visit", "kill_coordinator"]


def watch(run, lines, stop):
    """Notes when the coordinator says what."""
    known = 0
    while not stop:
        said = run.coordinator.lines()
        lines += [(time.time(), line) for line in said[known:]]
        known = len(said)
        time.sleep(0.05)


def seconds_trained(island):
    """Between outer steps of one process, without waiting; what it was killed in does not count."""
    total, before = 0.0, None
    for record in island.outer():
        start = max(begin for begin, _ in island.spans if begin < record["time"])
        if before and before["time"] > start:
            total += max(0.0, record["time"] - before["time"] - record["outer_exposed_s"])
        else:
            total += record["outer_exposed_s"] * record["outer_utilisation"] / \
                max(1e-9, 1 - record["outer_utilisation"])
        before = record
    return total - island.stopped


def one_run(args, work, algorithm, rate, seconds, is_disturbed=True):
    """What there is to say of it. `rate`: steps of an island in a second, 0 where nobody knows."""
    steps, inner_steps = max(2000, int(rate * seconds)), max(100, int(rate * A_ROUND) // 4 * 4)
    soak = Soak(args, work, steps, inner_steps, algorithm)
    lines, stop, began = [], [], time.time()
    watcher = threading.Thread(target=watch, args=(soak.run, lines, stop), daemon=True)
    watcher.start()
    try:
        wait_until(lambda: soak.run.check() or soak.seen(), what="the first outer step")
        done = soak.go(seconds) if is_disturbed else []
        wrong = soak.run.end()
        stop.append(True)
        watcher.join()
        return {"done": done, "wrong": wrong, "alarms": soak.false_alarms(lines),
                "trained": sum(map(seconds_trained, soak.run.islands)),
                "scheduled": sum(island.seconds_up() for island in soak.run.islands),
                "outer": len(soak.seen()), "rate": soak.rate(), "seconds": time.time() - began}
    finally:
        soak.run.stop()


class Report:
    """Prints each run, and what all of them amount to."""

    def __init__(self, work, seed):
        self.work, self.seed, self.number, self.disturbed = work, seed, 0, []

    def go(self, args, algorithm, rate, seconds, is_disturbed=True):
        work = self.work / str(self.number)
        try:
            run = one_run(args, work, algorithm, rate, seconds, is_disturbed)
        except SystemExit as problem:
            raise SystemExit(f"soak: FAILED with seed {self.seed}: {problem}; "
                             f"everything is in {work}") from None
        what = f"after: {', '.join(run['done']) or 'nothing'}" if is_disturbed else "undisturbed"
        print(f"run {self.number}: {algorithm}, {run['seconds']:.0f} s, {run['outer']} outer "
              f"steps, {run['rate']:.0f} steps/s of an island, "
              f"{100 * run['trained'] / run['scheduled']:.0f}% of the time training, {what}",
              flush=True)
        for text in (*run["wrong"], *(f"false alarm: {alarm}" for alarm in run["alarms"])):
            print(f"  {text}")
        if run["wrong"]:
            raise SystemExit(f"soak: FAILED with seed {self.seed}; everything is in {work}")
        shutil.rmtree(work)
        self.number += 1
        if is_disturbed:
            self.disturbed.append(run)
        return run

    def end(self, expected):
        """`expected`: steps that undisturbed runs would have made meanwhile."""
        runs = self.disturbed
        alarms = [alarm for run in runs for alarm in run["alarms"]]
        evictions = sum(line.endswith(" is out") for line in alarms)
        made = sum(run["rate"] * run["seconds"] for run in runs)
        print(f"soak: {sum(len(run['done']) for run in runs)} faults, "
              f"{sum(run['outer'] for run in runs)} outer steps, {100 * made / expected:.1f}% of "
              f"the steps a second of undisturbed runs, "
              f"{100 * sum(r['trained'] for r in runs) / sum(r['scheduled'] for r in runs):.1f}% "
              f"of the time training; 0 divergent commits, 0 batches lost or doubled, {evictions} "
              f"islands turned out and {len(alarms) - evictions} suspected without cause")
        if evictions:
            raise SystemExit("soak: FAILED: islands were turned out without cause")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atoll")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--every", type=float, default=10, help="seconds between two faults")
    parser.add_argument("--islands", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--run-seconds", type=float, default=60, help="of a run, about")
    parser.add_argument("--behind-nat", action="store_true", help="islands only call out")
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    args = parser.parse_args()
    random.seed(args.seed)
    print(f"soak: {args.islands} islands, a fault every {args.every:g} s for {args.seconds:g} s, "
          f"seed {args.seed}", flush=True)
    begin = time.time()
    report = Report(pathlib.Path(tempfile.mkdtemp(prefix="atoll-soak-")), args.seed)
    # How fast this machine is, so that outer steps are some seconds apart from then on.
    rate = report.go(args, args.algorithms[0], 0, 0, is_disturbed=False)["rate"]
    alone, expected = {}, 0.0
    for algorithm in itertools.cycle(args.algorithms):
        left = args.seconds - (time.time() - begin)
        if expected > 0 and left < 10:
            break
        if algorithm not in alone:
            run = report.go(args, algorithm, rate, UNDISTURBED, is_disturbed=False)
            rate = alone[algorithm] = run["rate"]
        left = args.seconds - (time.time() - begin)
        run = report.go(args, algorithm, rate, min(args.run_seconds, max(10, left)))
        expected += alone[algorithm] * run["seconds"]
    shutil.rmtree(report.work)
    report.end(expected)


if __name__ == "__main__":
    main()
