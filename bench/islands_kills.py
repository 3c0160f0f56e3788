#!/usr/bin/env python3
"""Kills islands and coordinators of real runs at random moments, and says what it cost.

    bench/islands_kills.py islands --faults 50 --record runs/kills.jsonl
    bench/islands_kills.py coordinator | stop | slow ...
    bench/islands_kills.py table --record runs/kills.jsonl

Runs are short, so that many of them can be spread over time; each adds lines to the record, from
which `table` makes the figures. `slow` needs the machine for itself: two cores. Steps take about
two milliseconds, outer steps follow after --inner-steps of them.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

from islands_run import ROOT, Run, wait_until

TOKENS_A_STEP = 2 * 128


class Record(list):
    """What is kept even when this program is killed."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def append(self, record):
        super().append(record)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class Faults:
    """One run with as many faults as fit into it."""

    def __init__(self, args, names):
        self.args, self.done = args, 0
        work = args.work / f"{args.scenario}-{os.getpid()}"
        shutil.rmtree(work, ignore_errors=True)
        self.run = Run(args.atoll, work, names, args.steps,
                       ["--outer.grace_s=1", f"--outer.inner_steps={args.inner_steps}",
                        "--checkpoint.every=50", "--log.every=1"])
        self.run.start()
        self.survivor, self.victim = self.run.islands[0], self.run.islands[-1]

    def share_done(self):
        outer = self.survivor.outer()
        tokens = sum(record["outer_tokens"] for record in outer)
        return tokens / (self.args.steps * TOKENS_A_STEP * len(self.run.islands))

    def all_take_part(self, after):
        """Waits for an outer step with all islands; False when the run is too near its end."""
        def look():
            if self.share_done() > 0.9:
                return "end"
            some = [r for r in self.survivor.outer() if r["time"] > after]
            return some and some[-1]["outer_members"] == len(self.run.islands) and "all"
        return wait_until(look, what="an outer step with all islands") == "all"

    def pause(self):
        """To a moment in a round; half of them near its end, where the exchange is."""
        outer = self.victim.outer()
        rounds = [b["time"] - a["time"] for a, b in zip(outer[-4:], outer[-3:])] or [0.2]
        a_round = statistics.median(rounds)
        begin = 0.85 * a_round if random.random() < 0.5 else 0
        time.sleep(random.uniform(begin, 1.15 * a_round))

    def next_commit(self, fault):
        return wait_until(lambda: next((r["time"] for r in self.survivor.outer()
                                        if r["time"] > fault), None), what="the next commit")

    def end(self, records):
        faults = self.run.end()
        committed = self.run.committed_tokens()
        survivors = self.run.islands[:-1] if self.args.scenario != "coordinator" else \
            self.run.islands
        lost = {island.name: len(island.steps()) - committed.get(island.name, 0) / TOKENS_A_STEP
                for island in survivors}
        doubled = [island.name for island in survivors
                   if [r["outer_step"] for r in island.outer()] !=
                   list(range(1, 1 + len(island.outer())))]
        if doubled:
            faults.append(f"outer steps are not 1, 2, ... on {doubled}")
        records.append({"scenario": self.args.scenario, "end": True, "faults": faults,
                        "survivors_lost": max(lost.values()), "outer_steps":
                        len(self.survivor.outer())})
        self.run.stop()
        if not faults:
            shutil.rmtree(self.run.work)


def islands(faults):
    fault = time.time()
    faults.victim.kill()
    last = max((r["time"] for r in faults.victim.outer() if r["outer_contributed"]), default=0)
    lost = sum(last < r["time"] <= fault for r in faults.victim.steps())
    if not faults.args.late or random.random() < 0.5:
        faults.victim.start()
        back = time.time()
    found = {"next_commit_s": faults.next_commit(fault) - fault, "victim_lost": lost}
    if not faults.victim.is_up():
        faults.victim.start()
        back = time.time()
    if faults.all_take_part(back):
        found["rejoined_s"] = faults.survivor.outer()[-1]["time"] - back
    return found


def coordinator(faults):
    fault = time.time()
    starts = len([line for line in faults.run.coordinator.lines() if "coordinator at" in line])
    before = len(faults.survivor.steps())
    faults.run.coordinator.kill()
    faults.run.coordinator.start()
    wait_until(lambda: len([line for line in faults.run.coordinator.lines()
                            if "coordinator at" in line]) > starts, what="the coordinator")
    back = time.time() - fault
    commit = faults.next_commit(fault)
    return {"back_s": back, "next_commit_s": commit - fault,
            "steps_meanwhile": sum(r["time"] < commit for r in faults.survivor.steps()[before:])}


def stop(faults):
    told = sum("is suspected" in line for line in faults.run.coordinator.lines())
    fault = time.time()
    faults.victim.child.send_signal(signal.SIGSTOP)
    wait_until(lambda: sum("is suspected" in line for line in faults.run.coordinator.lines()) >
               told, what="suspicion")
    suspected = time.time() - fault
    commit = faults.next_commit(fault) - fault
    time.sleep(random.uniform(0, 6))
    faults.victim.child.send_signal(signal.SIGCONT)
    back = time.time()
    found = {"suspected_s": suspected, "next_commit_s": commit}
    if faults.all_take_part(back):
        found["rejoined_s"] = faults.survivor.outer()[-1]["time"] - back
    return found


def slow(args, records):
    """The share of its time that an island trains beside one that has a quarter of a core."""
    args.steps = args.steps // 2
    run = Run(args.atoll, args.work / f"slow-{os.getpid()}", "ab", args.steps,
              [f"--outer.inner_steps={args.inner_steps}", "--outer.grace_s=10", "--log.every=1"])
    spinners = [subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"])
                for _ in range(3)]
    try:
        for core, island in enumerate(run.islands):
            island.start()
            subprocess.run(["taskset", "-a", "-p", "-c", str(core), str(island.child.pid)],
                           check=True, capture_output=True)
        faults = run.end()
    finally:
        for spinner in spinners:
            spinner.kill()
        run.stop()
    fast, other = run.islands
    outer = fast.outer()
    outer = outer[len(outer) // 5:len(outer) * 4 // 5]  # speeds must be known, batches be left
    exposed = sum(r["outer_exposed_s"] for r in outer)
    trained = sum(r["outer_exposed_s"] * r["outer_utilisation"] /
                  max(1e-9, 1 - r["outer_utilisation"]) for r in outer)
    records.append({"scenario": "slow", "goodput": trained / (trained + exposed),
                    "speeds": len(fast.steps()) / len(other.steps()), "faults": faults,
                    "end": True,
                    "with_both": sum(r["outer_members"] == 2 for r in outer) / len(outer)})


def row(name, values, aim, unit=" s", digits=2):
    if not values:
        return
    median, worst = statistics.median(values), max(values)
    print(f"| {name} | {len(values)} | {median:.{digits}f}{unit} | {worst:.{digits}f}{unit} | "
          f"{aim} |")


def table(args):
    with open(args.record, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    print("| | faults | median | worst | aim |\n|---|---|---|---|---|")
    of = {name: [r for r in records if r["scenario"] == name and "end" not in r]
          for name in ("islands", "coordinator", "stop")}
    ends = [r for r in records if "end" in r]

    def pick(name, key):
        return [r[key] for r in of[name] if key in r]
    row("an island is killed: the next commit", pick("islands", "next_commit_s"), "5 s")
    row("... inner steps that it loses", pick("islands", "victim_lost"),
        f"{args.inner_steps} (H)", "", 0)
    row("... started again: until it takes part", pick("islands", "rejoined_s"), "10 s")
    row("the coordinator is killed: it is back", pick("coordinator", "back_s"), "5 s")
    row("... the next commit", pick("coordinator", "next_commit_s"), "5 s")
    row("... inner steps until then", pick("coordinator", "steps_meanwhile"), "go on", "", 0)
    row("an island is stopped: it is suspected", pick("stop", "suspected_s"), "3 s")
    row("... the next commit", pick("stop", "next_commit_s"), "5 s")
    row("... goes on: until it takes part", pick("stop", "rejoined_s"), "10 s")
    for record in ends:
        if record["scenario"] == "slow":
            print(f"| beside an island {record['speeds']:.1f} times slower: goodput | | "
                  f"{100 * record['goodput']:.1f}% | | 90% |")
    lost = [r["survivors_lost"] for r in ends if "survivors_lost" in r]
    print(f"\n{len(ends)} runs, {sum(r.get('outer_steps', 0) for r in ends)} outer steps; inner "
          f"steps lost by survivors: {max(lost, default=0):.0f}; runs in which models, ledger or "
          f"exit codes were not as they should be: {sum(bool(r['faults']) for r in ends)}")
    for record in ends:
        for fault in record["faults"]:
            print(f"  {record['scenario']}: {fault}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=["islands", "coordinator", "stop", "slow", "table"])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/islands-kills")
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=180, help="no new run after so long")
    parser.add_argument("--steps", type=int, default=10000, help="of an island, in a run")
    parser.add_argument("--inner-steps", type=int, default=100)
    parser.add_argument("--late", action="store_true",
                        help="half of the killed islands come back only after the next commit")
    parser.add_argument("--record", type=pathlib.Path, default=ROOT / "runs/islands-kills.jsonl")
    args = parser.parse_args()
    if args.scenario == "table":
        return table(args)
    records, begin, done = Record(args.record), time.time(), 0
    if args.scenario == "slow":
        slow(args, records)
    names = "ab" if args.scenario == "coordinator" else "abc"
    while args.scenario != "slow" and done < args.faults and time.time() - begin < args.seconds:
        faults, after = Faults(args, names), 0
        while done < args.faults and time.time() - begin < args.seconds and \
                faults.all_take_part(after):
            faults.pause()
            found = globals()[args.scenario](faults)
            records.append({"scenario": args.scenario, **found})
            done, after = done + 1, time.time()
        faults.end(records)
    print(f"{done} faults in {time.time() - begin:.0f} s; not as it should be: "
          f"{sum((r['faults'] for r in records if r.get('faults')), []) or 'nothing'}")
    return None


if __name__ == "__main__":
    main()
