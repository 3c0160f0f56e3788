#!/usr/bin/env python3
"""Steps of a model with experts beside steps of dense ones, in turns.

    bench/experts.py [--build build/release] [--rounds 5] [--steps 6] [--experts 8,32] [--threads 2]

The dense model has an MLP as wide as the experts that a token goes through together, so that both do
the same products for a token: the same active FLOPs. Tokens of a second are given, and tokens of a CPU second, which
other work on the machine moves less; the ratio is the median of the rounds.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = {"model.hidden_size": 256, "model.num_hidden_layers": 4, "model.num_attention_heads": 8,
         "data.vocab_size": 2048, "train.context": 256, "train.batch_size": 4, "train.micro_batch": 4}


def step(args, settings):
    """Tokens a second and tokens a CPU second of a step."""
    words = [args.build / "bin/atoll", "bench", "step", ROOT / "recipes/kjv-demo.toml", "--json",
             f"--steps={args.steps}", "--warmup=2", f"--device.threads={args.threads}"]
    words += [f"--{key}={value}" for key, value in (SHAPE | settings).items()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads(subprocess.run([str(word) for word in words], check=True, capture_output=True,
                                     text=True).stdout.splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    tokens = SHAPE["train.batch_size"] * SHAPE["train.context"]
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / (args.steps + 2)
    return tokens / statistics.median(said["step_seconds"]), tokens / cpu


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--experts", default="8,32")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print("| experts | of a token | each is wide | tok/s | tok/s of dense | tok/s to dense | "
          "tok/CPU s to dense |\n|---|---|---|---|---|---|---|")
    for experts in map(int, args.experts.split(",")):
        top = 2 if experts <= 8 else 4
        wide = 768 // top
        sparse = {"model.family": "mixtral", "model.num_experts": experts,
                  "model.num_experts_per_tok": top, "model.intermediate_size": wide}
        dense = {"model.family": "llama", "model.intermediate_size": 768}
        rounds = []
        for _ in range(args.rounds):
            rounds.append((step(args, sparse), step(args, dense)))
        median = lambda pick: statistics.median(pick(one) for one in rounds)  # noqa: E731
        print(f"| {experts} | {top} | {wide} | {median(lambda r: r[0][0]):.0f} | "
              f"{median(lambda r: r[1][0]):.0f} | {median(lambda r: r[0][0] / r[1][0]):.2f} | "
              f"{median(lambda r: r[0][1] / r[1][1]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
