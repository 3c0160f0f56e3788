#!/usr/bin/env python3
"""Two ranks of one thread each that share each long sequence: atoll beside PyTorch's ring.

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install torch transformers numpy
    .venv-peers/bin/python bench/peers/context.py [--rounds 5]

Both start from the same weights and read the same samples, in f32 with AdamW and clipping: the
losses printed must agree. In a round each runs once, one after the other; a ratio is of two runs of
the same round. One rank of one thread is beside them: what sharing gains.
"""

import argparse
import pathlib
import sys

import torch
import transformers

import quiet
import ranks as two
import runs
import shapes

CP = ("-n2", "--parallel.cp=2")
SETTINGS = {"atoll, ring, threads": (*CP, "--backend=threads", "--parallel.cp_attention=ring"),
            "atoll, ring, processes": (*CP, "--backend=gloo", "--parallel.cp_attention=ring"),
            "atoll, ulysses, threads": (*CP, "--backend=threads", "--parallel.cp_attention=ulysses"),
            "atoll, one rank": ()}


def run_atoll(args, shape, settings):
    run = runs.Run(args.atoll, args.work / "run", shape, args.work / "corpus", 1, args.steps,
                   *settings, model=[f"--model.from={args.work / shape.name}"])
    records = run.finish()
    return runs.step_ms(records, args.warm), records[2]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path,
                        default=shapes.ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", default=shapes.ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=shapes.ROOT / "runs/peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warm", type=int, default=2, help="steps left out of a run's median")
    quiet.add_options(parser)
    args = parser.parse_args()
    shape = shapes.LONG
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    corpus = shapes.make_corpus(args.atoll, args.text, args.work / "corpus")
    two.write_init(shape, args.work / shape.name, corpus)
    speeds, losses = {}, {}
    calm = quiet.Quiet(args.others, args.patience)
    for _ in range(args.rounds):
        for name in [*SETTINGS, "torch_cp"]:
            if name in SETTINGS:
                ms, loss = calm.measure(lambda: run_atoll(args, shape, SETTINGS[name]))
            else:
                ms, loss = calm.measure(
                    lambda: two.run_peer(args, name, shape, args.steps, False))
            speeds.setdefault(name, []).append(1e3 * shape.tokens / ms)
            losses[name] = loss
            print(f"  {name} {speeds[name][-1]:.1f} tok/s", file=sys.stderr, flush=True)
    print(f"\n{shape.tokens} tokens a step, {args.steps} steps, {args.rounds} rounds; {calm}\n")
    print("| | tok/s | of one rank of atoll | beside torch_cp | loss at step 3 |")
    print("|---|---|---|---|---|")
    for name, mine in speeds.items():
        alone = [a / b for a, b in zip(mine, speeds["atoll, one rank"])]
        ratios = [a / b for a, b in zip(mine, speeds["torch_cp"])]
        print(f"| {name} | {runs.describe(mine, 0)} | {runs.describe(alone)} | "
              f"{runs.describe(ratios)} | {losses[name]:.6f} |")


if __name__ == "__main__":
    main()
