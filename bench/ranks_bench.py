#!/usr/bin/env python3
"""Weak scaling and memory of data-parallel ranks.

    bench/ranks_bench.py scaling [--models demo gpt2] [--rounds 5]
    bench/ranks_bench.py memory

scaling: two ranks of one thread each, by each backend, beside two runs of one rank that train side
by side without knowing of each other: the same work on the same cores. Rounds are interleaved, and
a ratio is always of two neighbours in time.

memory: VmHWM of each rank's process, after some steps of GPT-2 124M, beside what `atoll plan -n`
prints; and with the checkpoint that ends a run.
"""

import argparse
import pathlib
import re
import statistics
import subprocess

from peers import quiet, runs, shapes

BACKENDS = ("threads", "gloo", "mpi")


def side_by_side(args, shape, corpus, steps):
    """Mean tokens a second of two runs that are alone, added up."""
    pair = [runs.Run(args.atoll, args.work / f"alone{i}", shape, corpus, 1, steps,
                     f"--run.seed={i + 1}") for i in range(2)]
    return sum(1e3 * shape.tokens / runs.step_ms(run.finish()) for run in pair)


def together(args, shape, corpus, steps, backend, zero):
    run = runs.Run(args.atoll, args.work / backend, shape, corpus, 2, steps,
                   f"--backend={backend}", f"--dp.zero={zero}")
    records = run.finish()
    exposed = statistics.median(record["exposed_comm_fraction"] for record in records[2:])
    return 1e3 * 2 * shape.tokens / runs.step_ms(records), exposed


def scaling(args):
    corpus = shapes.make_corpus(args.atoll, args.text, args.work / "corpus")
    for name in args.models:
        shape = shapes.SHAPES[name]
        shapes.write_config(shape, args.work / name)
        steps = args.steps or {"demo": 60, "gpt2": 8}[name]
        cases = [(backend, zero) for backend in args.backends for zero in args.zero]
        alone, speed, ratio, exposed = [], {}, {}, {}
        calm = quiet.Quiet(args.others, args.patience)
        for _ in range(args.rounds):
            for case in cases:
                before = calm.measure(lambda: side_by_side(args, shape, corpus, steps))
                now, left = calm.measure(lambda: together(args, shape, corpus, steps, *case))
                alone.append(before)
                speed.setdefault(case, []).append(now)
                ratio.setdefault(case, []).append(now / before)
                exposed.setdefault(case, []).append(100 * left)
        print(f"\n{name}: {shape.tokens} tokens a rank and step, {steps} steps, "
              f"{args.rounds} rounds; two alone: {runs.describe(alone, 0)} tok/s; {calm}\n")
        print("| backend | dp.zero | tok/s | of two alone | exposed, % of a step |")
        print("|---|---|---|---|---|")
        for case in cases:
            print(f"| {case[0]} | {case[1]} | {runs.describe(speed[case], 0)} | "
                  f"{runs.describe(ratio[case], 3)} | {runs.describe(exposed[case], 1)} |",
                  flush=True)


def planned_mib(args, shape, corpus, *settings):
    """Of the rank with most, as `atoll plan` says."""
    finished = subprocess.run(
        [args.atoll, "plan", f"--run.dir={args.work / 'plan'}", f"--data.shards={corpus}",
         f"--model.config={corpus.parent / shape.name / 'config.json'}", *settings],
        check=True, capture_output=True, text=True)
    return float(re.search(r"^  total +([0-9.]+) MiB", finished.stdout, re.M)[1])


def memory(args):
    corpus = shapes.make_corpus(args.atoll, args.text, args.work / "corpus")
    shape = shapes.GPT2
    shapes.write_config(shape, args.work / shape.name)
    print("| ranks | dp.zero | planned MiB | VmHWM of each rank, MiB | largest / planned | "
          "after the checkpoint |\n|---|---|---|---|---|---|")
    for ranks in args.ranks:
        for zero in args.zero:
            batch = (f"--train.batch_size={shape.sequences * ranks}",
                     f"--train.micro_batch={shape.sequences}", f"--train.context={shape.context}",
                     f"--dp.zero={zero}")
            planned = planned_mib(args, shape, corpus, "-n", str(ranks), *batch)
            run = runs.Run(args.atoll, args.work / "memory", shape, corpus, ranks, 3,
                           f"--dp.zero={zero}", f"--backend={args.backends[0]}")
            run.finish()
            # The process that starts the ranks is none of them.
            peaks = sorted((kib / 1024 for kib in run.step_kib.values()), reverse=True)[:ranks]
            print(f"| {ranks} | {zero} | {planned:.1f} | "
                  f"{', '.join(f'{peak:.1f}' for peak in peaks)} | {peaks[0] / planned:.3f} | "
                  f"{max(run.peak_kib.values()) / 1024:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["scaling", "memory"])
    parser.add_argument("--atoll", type=pathlib.Path,
                        default=shapes.ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", default=shapes.ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=shapes.ROOT / "runs/ranks-bench")
    parser.add_argument("--models", nargs="+", default=["demo", "gpt2"])
    parser.add_argument("--backends", nargs="+")
    parser.add_argument("--zero", nargs="+", type=int)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    quiet.add_options(parser)
    args = parser.parse_args()
    if args.what == "scaling":
        args.backends, args.zero = args.backends or BACKENDS, args.zero or [0]
        scaling(args)
    else:
        args.backends, args.zero = args.backends or ["gloo"], args.zero or [0, 1, 2, 3]
        memory(args)


if __name__ == "__main__":
    main()
