#!/usr/bin/env python3
"""Two ranks of one thread each that have a half of the model each: atoll's 1F1B beside PyTorch's
(torch.distributed.pipelining) over Gloo.

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install torch transformers numpy
    .venv-peers/bin/python bench/peers/pipeline.py [--rounds 5]

Both start from the same weights and read the same micro-batches, in f32 with AdamW and clipping: the
losses printed must agree. In a round each runs once, one after the other; a ratio is of two runs of
the same round. One rank of one thread is beside them.
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

PARTS = ("-n2", "--parallel.pp=2")
SETTINGS = {"atoll, 1f1b, threads": (*PARTS, "--backend=threads", "--parallel.schedule=1f1b"),
            "atoll, 1f1b, processes": (*PARTS, "--backend=gloo", "--parallel.schedule=1f1b"),
            "atoll, zb-h1, threads": (*PARTS, "--backend=threads", "--parallel.schedule=zb-h1"),
            "atoll, one rank": ()}
PEER = "torch_pp"


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
    parser.add_argument("--programs", nargs="+", choices=[*SETTINGS, PEER],
                        default=[*SETTINGS, PEER])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warm", type=int, default=3, help="steps left out of a run's median")
    quiet.add_options(parser)
    args = parser.parse_args()
    shape = shapes.PIPE
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    corpus = shapes.make_corpus(args.atoll, args.text, args.work / "corpus")
    if not (args.work / shape.name / "model.safetensors").exists():
        two.write_init(shape, args.work / shape.name, corpus)
    speeds, losses = {}, {}
    calm = quiet.Quiet(args.others, args.patience)
    for _ in range(args.rounds):
        for name in args.programs:
            if name in SETTINGS:
                ms, loss = calm.measure(lambda: run_atoll(args, shape, SETTINGS[name]))
            else:
                ms, loss = calm.measure(
                    lambda: two.run_peer(args, name, shape, args.steps, False))
            speeds.setdefault(name, []).append(1e3 * shape.tokens / ms)
            losses[name] = loss
            print(f"  {name} {speeds[name][-1]:.1f} tok/s", file=sys.stderr, flush=True)
    print(f"\n{shape.tokens} tokens a step in {shape.micro_batches} micro-batches, {args.steps} "
          f"steps, {args.rounds} rounds; {calm}\n")
    print("| | tok/s | beside torch_pp | of one rank of atoll | loss at step 3 |")
    print("|---|---|---|---|---|")
    for name, mine in speeds.items():
        beside = [runs.describe([a / b for a, b in zip(mine, speeds[other])])
                  if other in speeds else "" for other in (PEER, "atoll, one rank")]
        print(f"| {name} | {runs.describe(mine, 0)} | {' | '.join(beside)} | "
              f"{losses[name]:.6f} |")


if __name__ == "__main__":
    main()
