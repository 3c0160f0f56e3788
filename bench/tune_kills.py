#!/usr/bin/env python3
"""Kills tuner and trials of a study at random moments, again and again, and compares it with one that was left alone.

    python3 bench/tune_kills.py build/release/bin/atoll --kills 200 --work /tmp/kills
    python3 bench/tune_kills.py build/release/bin/atoll --kills 200 --work /tmp/kills --workers 2

With --workers the tuner trains nothing itself: so many workers, each with a directory of its own, are leased the trials, and are killed and stopped
for a while, too. Population Based Training then gives the same study as one machine, for it compares at equal steps; asha has one worker.

Exits with 1 when a trial is lost, is there twice, is left over as a process, or when a suggestion or a value is another.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
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


class Workers:
    """Those of a tuner at `port`, each started again when it was killed."""

    def __init__(self, atoll, port, count):
        self.words = [atoll, "tune", "work", f"127.0.0.1:{port}", "--threads=1", "--patience=120"]
        self.running = {}
        for number in range(count):
            shutil.rmtree(f"worker-{number}", ignore_errors=True)
            self.start(number)

    def start(self, number):
        with open(f"worker-{number}.log", "a", encoding="utf-8") as log:
            words = [*self.words, f"--dir=worker-{number}", f"--name=worker-{number}"]
            self.running[number] = subprocess.Popen(words, stdout=log, stderr=log)

    def disturb(self, draw, number, what):
        """Kills or stops one: without its parent a trial ends, of one that is stopped it goes on."""
        if what == "worker":
            self.running[number].kill()
            self.running[number].wait()
            self.start(number)
        else:
            self.running[number].send_signal(signal.SIGSTOP)
            time.sleep(draw.uniform(0, 4))
            self.running[number].send_signal(signal.SIGCONT)

    def end(self):
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # it was started when the study was over
                process.terminate()
                process.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="0: trials are processes of the tuner")
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
    if arguments.workers:
        kills |= {"worker": 0, "stopped": 0}
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
        command = [atoll, "tune", str(study), f"--study.dir={name}"]
        workers = None
        if arguments.workers:
            port = free_port()
            workers = Workers(atoll, port, arguments.workers if scheduler == "pbt" else 1)
            command += ["--study.workers=0", f"--study.listen=127.0.0.1:{port}", "--study.lease_s=2"]
        while True:
            tuner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            what = draw.choice(list(kills))
            try:
                tuner.wait(draw.expovariate(1 / 1.5))
            except subprocess.TimeoutExpired:
                if what in ("worker", "stopped"):
                    workers.disturb(draw, draw.choice(list(workers.running)), what)
                    kills[what] += 1
                    try:
                        tuner.wait(draw.expovariate(1 / 3.0))
                    except subprocess.TimeoutExpired:
                        pass
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
        if workers:
            workers.end()
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
