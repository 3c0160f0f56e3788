#!/usr/bin/env python3
"""Kills tuner and trials of a study at random moments, again and again, and compares it with one that was left alone.

    python3 bench/tune_kills.py build/release/bin/atoll --kills 200 --work /tmp/kills

Exits with 1 when a trial is lost, is there twice, is left over as a process, or when a suggestion or a value is another.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

RECIPE = """[run]
dir = "runs/x"
[model]
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
shards = ["shards"]
[train]
steps = {steps}
batch_size = 4
micro_batch = 2
context = 32
[optim]
lr = 0.01
schedule = "constant"
[device]
threads = 1
"""
STUDY = """[study]
recipe = "recipe.toml"
dir = "{name}"
scheduler = "{scheduler}"
startup = 4
[space]
optim.lr = {{low = 1e-3, high = 3e-2, scale = "log"}}
optim.weight_decay = {{low = 1e-3, high = 0.3, scale = "log"}}
{more}
"""
BUDGET = {
    "asha": "[budget]\ntrials = {trials}\n[rungs]\nmin_steps = 10\neta = 2\n",
    "pbt": "[pbt]\npopulation = 4\ninterval = 20\n",
}


def essence(atoll, name):
    shown = json.loads(subprocess.run([atoll, "tune", "show", name, "--json"], check=True, capture_output=True).stdout)
    return [
        (t["units"], t["state"], t.get("parent"), [(m["step"], m["values"], m["tokens"]) for m in t["measured"]])
        for t in shown["trials"]
    ], sum(t["starts"] for t in shown["trials"])


def trials_alive(work):
    """Processes of trials of this work, by the directory that they were started in."""
    alive = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"train" in words[1:2] and os.readlink(entry / "cwd") == str(work):
                alive.append(int(entry.name))
        except OSError:
            continue
    return alive


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", required=True)
    arguments = parser.parse_args()
    atoll = str(pathlib.Path(arguments.atoll).resolve())
    work = pathlib.Path(arguments.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    draw = random.Random(arguments.seed)
    words = "the sea is wide and a ring of islands lies there".split()
    pathlib.Path("text.txt").write_text("".join(draw.choice(words) + draw.choice([" ", " ", ".\n"]) for _ in range(6000)))
    if not pathlib.Path("shards").exists():
        words = [atoll, "tokenize", "text.txt", "--out", "shards", "--vocab-size", "300"]
        subprocess.run(words, check=True, capture_output=True)
    pathlib.Path("recipe.toml").write_text(RECIPE.format(steps=arguments.steps))
    kills = {"tuner": 0, "trial": 0, "both": 0}
    rounds = 0
    while sum(kills.values()) < arguments.kills:
        scheduler = ("asha", "pbt")[rounds % 2]
        rounds += 1
        study = pathlib.Path(f"{scheduler}.toml")
        whole = f"{scheduler}-whole"
        more = BUDGET[scheduler].format(trials=arguments.trials)
        study.write_text(STUDY.format(name=whole, scheduler=scheduler, more=more))
        if not pathlib.Path(whole).exists():
            subprocess.run([atoll, "tune", str(study)], check=True, capture_output=True)
        wanted, starts = essence(atoll, whole)
        name = f"{scheduler}-killed"
        shutil.rmtree(name, ignore_errors=True)
        while True:
            tuner = subprocess.Popen(
                [atoll, "tune", str(study), f"--study.dir={name}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            what = draw.choice(list(kills))
            try:
                tuner.wait(draw.expovariate(1 / 1.5))
            except subprocess.TimeoutExpired:
                if what == "trial":
                    for pid in trials_alive(work)[:1]:
                        os.kill(pid, signal.SIGKILL)
                        kills[what] += 1
                    # The tuner starts it again, and is killed later or comes to its end.
                    try:
                        tuner.wait(draw.expovariate(1 / 2.0))
                    except subprocess.TimeoutExpired:
                        pass
                if tuner.poll() is None:
                    kind = "both" if what == "both" else "tuner"
                    for pid in trials_alive(work)[:1] if kind == "both" else []:
                        os.kill(pid, signal.SIGKILL)
                    tuner.kill()
                    kills[kind] += 1
                    tuner.wait()
            error = tuner.stderr.read().decode()
            if tuner.returncode not in (0, -signal.SIGKILL):
                raise SystemExit(f"{scheduler}: the tuner ended with {tuner.returncode}: {error}")
            if tuner.returncode == 0:
                break
        time.sleep(0.2)
        left = trials_alive(work)
        if left:
            raise SystemExit(f"{scheduler}: trials {left} are left over")
        found, restarted = essence(atoll, name)
        if found != wanted:
            raise SystemExit(f"{scheduler}: the study that was killed is another; see {work}/{name}")
        print(f"{scheduler}: {len(found)} trials, the same; {restarted} starts instead of {starts}; so far {kills}", flush=True)


if __name__ == "__main__":
    main()
