#!/usr/bin/env python3
"""Runs that are killed while their tokens are made, or whose tokens are damaged: each must go on.

    tests/e2e/killed_data.py build/release/bin/atoll [--trials 50] [--seed 1] [--kinds train islands
        launch ranks damage]

Of each kind so many trials:

train    `atoll train` is killed (SIGKILL) at a random moment of tokenization, up to three times.
islands  `atoll train --islands 2`, all of its processes at once, or only the islands.
launch   `atoll launch` with two ranks, all of its processes at once.
ranks    the same, but only the ranks are killed; the launch starts them again.
damage   after a checkpoint: a file of RUN/data is damaged, cut or removed, or all of it.

Then the same command must end with 0, leave no unfinished file, and have made the tokens that an
undisturbed run makes; `atoll doctor` must say so. Exit code 1 and what was said when one does not.
The seed says what happens when; moments are waited for (a file that appears), and then a little.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE = 600  # seconds; only a hang gets there
RECIPE = """[model]
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
[data]
text = ["{root}/text.txt"]
vocab_size = 300
[train]
steps = {steps}
batch_size = 2
micro_batch = 1
context = 16
[log]
tensorboard = false
[device]
threads = 1
"""
# What appears in RUN/data, in this order; a kill comes when one of them is there.
STAGES = ["", "train-", ".atsh", "heldout-", "tokenizer.json", "corpus.json", "corpus.request"]


class Trial:
    def __init__(self, args, root, number, kind):
        self.args, self.root, self.kind = args, root, kind
        self.random = random.Random(f"{args.seed} {number} {kind}")
        self.run = root / f"{kind}-{number}"
        self.said = []

    def command(self, steps=2):
        recipe = self.root / f"steps-{steps}.toml"
        if not recipe.exists():
            recipe.write_text(RECIPE.format(root=self.root, steps=steps))
        start = [str(self.args.atoll)]
        if self.kind in ("launch", "ranks"):
            start += ["launch", str(recipe), "--min-ranks=1", "--max-ranks=2", "--max-restarts=9"]
        else:
            start += ["train", str(recipe)]
        if self.kind == "islands":
            start += ["--islands", "2", "--outer.inner_steps=1", "--outer.grace_s=5"]
        return start + [f"--run.dir={self.run}"]

    def wait_until_alone(self):
        """Ranks and islands of a parent that was killed end by themselves, a little later."""
        end = time.monotonic() + DEADLINE
        while is_anybody_in(self.run) and time.monotonic() < end:
            time.sleep(0.01)

    def start(self):
        self.wait_until_alone()
        log = open(self.root / "said.txt", "w")
        return subprocess.Popen(self.command(), stdout=log, stderr=log, start_new_session=True)

    def data(self):
        return self.run / ("islands/island-1/data" if self.kind == "islands" else "data")

    def wait_for_stage(self, process):
        """Until a file of a random stage is there; no longer than the process lives."""
        stage = self.random.choice(STAGES)
        end = time.monotonic() + DEADLINE
        while process.poll() is None and time.monotonic() < end:
            try:
                names = os.listdir(self.data())
            except FileNotFoundError:
                continue
            if stage == "" or any(stage in name for name in names):
                break
        time.sleep(self.random.random() ** 3 * 0.05)
        return stage

    def kill(self, process):
        """Kills all, or all but the parent, which then starts them again."""
        only_children = self.kind == "ranks" or (self.kind == "islands" and
                                                 self.random.random() < 0.5)
        if not only_children:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            for child in children(process.pid):
                os.kill(child, signal.SIGKILL)
        return only_children

    def disturb(self):
        for _ in range(self.random.randint(1, 3)):
            process = self.start()
            stage = self.wait_for_stage(process)
            only_children = process.poll() is None and self.kill(process)
            code = process.wait(timeout=DEADLINE)
            left = sorted(p.name for p in self.data().glob("*.tmp-*")) if not only_children else []
            self.said.append(f"killed at '{stage}', exit {code}, left {left}")
            if only_children and code != 0:
                raise AssertionError(f"it ended with {code}: {self.log()}")

    def damage(self):
        subprocess.run(self.command(), check=True, capture_output=True, timeout=DEADLINE)
        files = sorted(self.data().iterdir())
        path = self.random.choice(files + [self.data()])
        how = self.random.choice(["remove", "flip", "cut"])
        self.said.append(f"{how} {path.name}")
        if path == self.data():
            shutil.rmtree(path)
        elif how == "remove":
            path.unlink()
        elif how == "cut":
            os.truncate(path, self.random.randrange(path.stat().st_size))
        else:
            content = bytearray(path.read_bytes())
            content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
            path.write_bytes(content)
        if path.suffix == ".atsh" and path.exists():  # doctor sees what train sees
            doctor = subprocess.run([self.args.atoll, "doctor", self.run], capture_output=True)
            assert doctor.returncode == 1 and path.name.encode() in doctor.stderr, doctor

    def log(self):
        return (self.root / "said.txt").read_text()

    def check(self, expected):
        self.wait_until_alone()
        steps = 4 if self.kind == "damage" else 2
        done = subprocess.run(self.command(steps), capture_output=True, text=True, errors="replace",
                              timeout=DEADLINE)
        assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
        assert hashes(self.data()) == expected, f"other tokens: {done.stderr}"
        left = [str(path) for path in self.run.rglob("*.tmp-*")]
        assert not left, f"left behind: {left}"
        doctor = subprocess.run([self.args.atoll, "doctor", self.run], capture_output=True,
                                text=True, errors="replace")
        assert doctor.returncode == 0, doctor.stderr


def children(pid):
    """Those of a process, and theirs."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"PPid:\t{pid}\n" in (entry / "status").read_text():
                found += [int(entry.name)] + children(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def is_anybody_in(run):
    wanted = f"--run.dir={run}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if any(word in (wanted, wanted + b"/islands") or word.startswith(wanted + b"/islands/")
                   for word in words):
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def hashes(data):
    return json.loads((data / "corpus.json").read_text())["splits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atoll", type=pathlib.Path)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=["train", "islands", "launch", "ranks",
                                                       "damage"])
    args = parser.parse_args()
    args.atoll = args.atoll.resolve()
    root = pathlib.Path(tempfile.mkdtemp(prefix="atoll-killed-"))
    words = random.Random(1)
    (root / "text.txt").write_text("".join(
        words.choice(["the ", "sea ", "of ", "islands ", "lies ", "there.\n"])
        for _ in range(100_000)))
    failures = 0
    first = Trial(args, root, 0, "train")
    subprocess.run(first.command(), check=True, capture_output=True)
    expected = hashes(first.data())
    for kind in args.kinds:
        failed = with_leftovers = 0
        for number in range(1, args.trials + 1):
            trial = Trial(args, root, number, kind)
            try:
                trial.damage() if kind == "damage" else trial.disturb()
                trial.check(expected)
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"{kind} {number} failed: {'; '.join(trial.said)}: {error}", flush=True)
            with_leftovers += any(".tmp-" in line for line in trial.said)
            shutil.rmtree(trial.run, ignore_errors=True)
        print(f"{kind}: {args.trials} trials, {with_leftovers} with unfinished files left behind, "
              f"{failed} failures", flush=True)
        failures += failed
    shutil.rmtree(root)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
