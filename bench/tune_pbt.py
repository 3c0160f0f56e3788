#!/usr/bin/env python3
"""Population Based Training beside random search, live, at equal steps and a constant learning rate.

    python3 bench/tune_pbt.py build/release/bin/atoll kjv.txt --work /tmp/pbt --seeds 10

For each seed both studies train as many runs for as many steps, with learning rates and weight decays from the same ranges; the least held-out loss
at the last step counts. Prints a table, and the command that makes it. Runs that have ended are not repeated.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

RECIPE = """[run]
dir = "runs/x"
[model]
family = "llama"
hidden_size = {width}
num_hidden_layers = {layers}
num_attention_heads = 4
num_key_value_heads = 2
[data]
shards = ["shards"]
[train]
steps = {steps}
batch_size = {batch}
micro_batch = {batch}
context = {context}
[optim]
schedule = "constant"
[eval]
every = {interval}
max_tokens = 8192
[device]
threads = 1
"""
STUDY = """[study]
recipe = "recipe.toml"
dir = "{name}"
searcher = "random"
{scheduler}seed = {seed}
workers = 2
[space]
optim.lr = {{low = 1e-4, high = 3e-2, scale = "log"}}
optim.weight_decay = {{low = 1e-3, high = 0.3, scale = "log"}}
{more}"""


def call(words):
    done = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"{words}\n{done.stdout[-2000:]}")
    return done.stdout


def least_loss(options, way, seed):
    """Of the study, at the last step of its runs."""
    name = f"{way}-{seed}"
    if not pathlib.Path(name).exists():
        is_pbt = way == "pbt"
        more = (f"[pbt]\npopulation = {options.members}\ninterval = {options.interval}\n" if is_pbt
                else f"[budget]\ntrials = {options.members}\n")
        pathlib.Path(f"{name}.toml").write_text(STUDY.format(
            name=name, seed=seed, scheduler='scheduler = "pbt"\n' if is_pbt else "", more=more))
        call([options.atoll, "tune", f"{name}.toml"])
    shown = json.loads(call([options.atoll, "tune", "show", name, "--json"]))
    at_end = [value for trial in shown["trials"] for step, value in trial["curve"]
              if step == options.steps and value is not None]
    return min(at_end)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("text", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--work", required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--interval", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=1024)
    options = parser.parse_args()
    pathlib.Path(options.work).mkdir(parents=True, exist_ok=True)
    os.chdir(options.work)
    if not pathlib.Path("shards").exists():
        call([options.atoll, "tokenize", options.text, "--out", "shards", "--vocab-size", options.vocabulary])
    pathlib.Path("recipe.toml").write_text(RECIPE.format(**vars(options)))
    print("| seed | pbt | random | pbt over random |\n|---|---|---|---|")
    changes = []
    for seed in range(1, options.seeds + 1):
        pbt, plain = (least_loss(options, way, seed) for way in ("pbt", "random"))
        changes.append(pbt / plain - 1)
        print(f"| {seed} | {pbt:.4f} | {plain:.4f} | {100 * changes[-1]:+.2f}% |", flush=True)
    no_worse = sum(change <= 0 for change in changes)
    print(f"\nNo worse in {no_worse} of {len(changes)}; median {100 * statistics.median(changes):+.2f}%.")


if __name__ == "__main__":
    main()
