#!/usr/bin/env python3
"""Long sequences on two ranks of one thread each: ring attention and Ulysses beside one rank.

    bench/context_bench.py [--rounds 5] [--text FILE]

A round runs each once, one after the other, on the same samples from the same seed: a ratio is of
two runs of one round, and the losses printed must agree. waited: the share of a step in which a rank
waited for the other and did nothing else.
"""

import argparse
import pathlib
import statistics
import sys

from peers import quiet, runs, shapes

CASES = {"one rank": (),
         "two ranks, ulysses": ("-n2", "--parallel.cp=2", "--parallel.cp_attention=ulysses"),
         "two ranks, ring": ("-n2", "--parallel.cp=2", "--parallel.cp_attention=ring")}


def one_run(args, shape, name):
    backend = [f"--backend={args.backend}"] if CASES[name] else []
    run = runs.Run(args.atoll, args.work / "run", shape, args.work / "corpus", 1, args.steps,
                   *CASES[name], *backend)
    records = run.finish()
    waited = statistics.median(record.get("exposed_comm_fraction", 0) for record in records[1:])
    return runs.step_ms(records, args.warm), waited, records[1]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path,
                        default=shapes.ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", default=shapes.ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=shapes.ROOT / "runs/context")
    parser.add_argument("--backend", default="threads", choices=["threads", "tcp", "gloo", "mpi"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warm", type=int, default=1, help="steps left out of a run's median")
    quiet.add_options(parser)
    args = parser.parse_args()
    shape = shapes.LONG
    shapes.make_corpus(args.atoll, args.text, args.work / "corpus")
    shapes.write_config(shape, args.work / shape.name)
    calm = quiet.Quiet(args.others, args.patience)
    speeds, waits, losses = {}, {}, {}
    for _ in range(args.rounds):
        for name in CASES:
            ms, waited, losses[name] = calm.measure(lambda: one_run(args, shape, name))
            speeds.setdefault(name, []).append(1e3 * shape.tokens / ms)
            waits.setdefault(name, []).append(100 * waited)
            print(f"  {name} {speeds[name][-1]:.1f} tok/s", file=sys.stderr, flush=True)
    print(f"\n{shape.tokens} tokens in one sequence, {args.steps} steps, {args.rounds} rounds, "
          f"--backend={args.backend}; {calm}\n")
    print("| | tok/s | of one rank | waited, % of a step | loss at step 2 |")
    print("|---|---|---|---|---|")
    for name, mine in speeds.items():
        ratios = [a / b for a, b in zip(mine, speeds["one rank"])]
        print(f"| {name} | {runs.describe(mine, 0)} | {runs.describe(ratios)} | "
              f"{runs.describe(waits[name], 1)} | {losses[name]:.6f} |")


if __name__ == "__main__":
    main()
