"""Starts runs of atoll and reads what they say of each step."""

import json
import pathlib
import shutil
import statistics
import subprocess
import threading
import time


class Run:
    """One `atoll train` that goes on in the background."""

    def __init__(self, atoll, directory, shape, corpus, ranks, steps, *settings, model=None):
        shutil.rmtree(directory, ignore_errors=True)
        self.directory = pathlib.Path(directory)
        self.shape, self.ranks = shape, ranks
        self.peak_kib = {}  # of each process, with the checkpoint that is written at the end
        self.step_kib = {}  # until then
        command = [
            str(atoll), "train", f"--run.dir={directory}", f"--data.shards={corpus}",
            *(model or [f"--model.config={corpus.parent / shape.name / 'config.json'}"]),
            f"--train.steps={steps}", f"--train.batch_size={shape.sequences * shape.micro_batches * ranks}",
            f"--train.micro_batch={shape.sequences}", f"--train.context={shape.context}",
            "--optim.schedule=constant", "--optim.lr=3e-4", "--device.threads=1", "--log.every=1",
            "--log.tensorboard=false", "--eval.max_tokens=1", *settings]
        if ranks > 1:
            command += ["-n", str(ranks)]
        self.command = command
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True)
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def finish(self):
        """Records of the steps, in order."""
        _, errors = self.process.communicate()
        self.watcher.join()
        if self.process.returncode != 0:
            raise SystemExit(f"{' '.join(self.command)}\n{errors}")
        lines = (self.directory / "metrics.jsonl").read_text().splitlines()
        self.log = errors
        records = [record for record in map(json.loads, lines) if "step_ms" in record]
        shutil.rmtree(self.directory, ignore_errors=True)
        return records

    def _watch(self):
        # VmHWM only rises, so looking now and then misses little: the last steps are as the first.
        while self.process.poll() is None:
            for pid in family(self.process.pid):
                try:
                    status = pathlib.Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                for line in status.splitlines():
                    if line.startswith("VmHWM:"):
                        self.peak_kib[pid] = int(line.split()[1])
                        if not (self.directory / "checkpoints").exists():
                            self.step_kib[pid] = self.peak_kib[pid]
            time.sleep(0.1)


def family(pid):
    """A process and all below it."""
    found = [pid]
    for parent in found:
        for children in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                pass
    return found


def step_ms(records, skipped=2):
    """The median step; the first ones find caches cold."""
    return statistics.median(record["step_ms"] for record in records[skipped:])


def describe(values, digits=2):
    """A median with the lowest and the highest."""
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f}-{max(values):.{digits}f})")
