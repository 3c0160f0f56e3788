"""Runs as `atoll train` would have left them, for the tests of the page: healthy, with a straggler, with a lost rank, with steps
that are not finite, of 256 ranks, and one whose every text is markup. Ledgers of islands are made by watch_slow_test.cpp; a study is
one that `atoll tune` has done."""

import json
import math
import os
import random
import socket

EVIL = "<img src=x onerror=\"window.evil=1\"><script>window.evil=2</script>\"'`${window.evil=3}"


def special(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def line(step, time, **values):
    return json.dumps({"step": step, "time": time, **{name: special(value) for name, value in values.items()}}, separators=(",", ":")) + "\n"


def record(draw, i, every=1, ranks=1, slowest=0, excess=.02, tokens=512):
    loss = 2.1 + 5 * math.exp(-i / 400) + 2.5 * math.exp(-i / 40) + .05 * draw.gauss(0, 1)
    values = {"loss": loss, "grad_norm": 1.2 * math.exp(-i / 900) + .1 + abs(draw.gauss(0, .05)), "lr": 1.5e-3 * min(1, (i + 1) / 100) * (.55 + .45 * math.cos(min(i / 2000, 1) * math.pi)),
              "tokens": (i + 1) * every * tokens, "tokens_per_s": 10400 + 300 * draw.gauss(0, 1), "mfu": .64 + .01 * draw.gauss(0, 1),
              "step_ms": 49 + draw.gauss(0, 1), "data_fraction": .001}
    if ranks > 1:
        values |= {"ranks": ranks, "exposed_comm_fraction": .05 + .01 * draw.random(), "bytes_sent": 3.2e6, "slowest_rank": slowest, "slowest_rank_excess": excess}
    return values


def write(root, name, lines, steps=2000, settings="", checkpoints=()):
    path = os.path.join(root, name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "metrics.jsonl"), "w") as file:
        file.writelines(lines)
    # Its process is gone, as the lock says that nobody holds: without one, a file that has just grown is taken for a run of another machine.
    with open(os.path.join(path, "lock"), "w") as file:
        file.write(f"process 4711 on {socket.gethostname()}\n")
    with open(os.path.join(path, "settings.toml"), "w") as file:
        file.write(f"[run]\ndir = {json.dumps(name)}\n\n[train]\nsteps = {steps}\nbatch_size = 2\n{settings}")
    for step in checkpoints:
        os.makedirs(os.path.join(path, "checkpoints", f"step-{step:08}"), exist_ok=True)
    return path


def ordinary(seed, count, begin=1.7635e9, every=10, pause_at=None, **more):
    draw, lines, time = random.Random(seed), [], begin
    for i in range(count):
        time += every * .05 * (1 + .05 * draw.random())
        if i == pause_at:
            time += 900
        lines.append(line((i + 1) * every, time, **record(draw, i * every, every, **more)))
        if (i + 1) % 50 == 0:
            lines.append(line((i + 1) * every, time + .2, held_out_loss=2.3 + 5 * math.exp(-i * every / 400), held_out_bits_per_byte=.9, held_out_tokens=4096))
    return lines


def rank_times(path, step, ranks, slowest, excess):
    """ranks.json as the trainer leaves it: all ranks wait for the slowest."""
    draw = random.Random(ranks)
    compute = [20 * (1 + (excess if rank == slowest else .03 * draw.random())) for rank in range(ranks)]
    waited = [2 * (max(compute) - own) + .6 for own in compute]
    with open(os.path.join(path, "ranks.json"), "w") as file:
        json.dump({"step": step, "time": 1.7635e9 + 60, "steps": 20, "step_ms": [2 * max(compute) + 3] * ranks, "compute_ms": compute, "waited_ms": waited}, file)


def samples(path):
    with open(os.path.join(path, "samples.jsonl"), "w") as file:
        for step in (500, 1000, 1500, 2000):
            for number, prompt in enumerate(("In the beginning", "And the sea")):
                text = {500: " the the of and", 1000: " of the waters, and the", 1500: " God made the waters to stand", 2000: " was the word, and it was good"}[step]
                file.write(json.dumps({"step": step, "time": 1.7635e9 + step / 20, "number": number, "prompt": prompt, "text": text}) + "\n")
        file.write('{"step": 2500, "ti')


def make(root):
    path = write(root, "healthy", ordinary(1, 200), 2000, "[optim]\nlr = 0.0015\nwarmup_steps = 100\n", (1000, 2000))
    samples(path)
    write(root, "restarted", ordinary(2, 180, pause_at=90), 2000, "[optim]\nlr = 0.003\nwarmup_steps = 100\n", (900, 1800))
    path = write(root, "straggler", ordinary(3, 120, ranks=8, slowest=5, excess=.41), 2000, checkpoints=(1200,))
    rank_times(path, 1200, 8, 5, .41)
    lost = ordinary(4, 60, ranks=4)
    lost.append(line(600, 1.7635e9 + 40, regroup_ranks=3, regroup_seconds=.42))
    lost += [text for text in ordinary(5, 120, begin=1.7635e9 + 41, ranks=3) if json.loads(text)["step"] > 600]
    path = write(root, "lost-rank", lost, 2000, checkpoints=(500,))
    with open(os.path.join(path, "alerts.jsonl"), "w") as file:
        file.write(json.dumps({"time": 1.7635e9 + 40, "step": 600, "kind": "rank_lost", "severity": "error", "message": "rank 2 was lost (process 4711 was killed by signal 9); 3 ranks go on", "command": "atoll launch recipe.toml --max-ranks=4"}) + "\n")
        file.write('{"time": 1, "half a li')
    nan = ordinary(6, 100)
    for i in (40, 41, 42, 77):
        row = json.loads(nan[i])
        row["loss"], row["grad_norm"] = "NaN", "Infinity"
        nan[i] = json.dumps(row) + "\n"
    nan.insert(41, line(410, 1.7635e9 + 20.6, nonfinite=1, nonfinite_samples="batch 410: sample 820 of text.txt at byte 1234"))
    write(root, "nan", nan, 2000, checkpoints=(400,))
    path = write(root, "ranks-256", ordinary(7, 60, ranks=256, slowest=201, excess=.3), 600, checkpoints=(600,))
    rank_times(path, 600, 256, 201, .3)
    evil = ordinary(8, 20)
    evil.append(json.dumps({"step": 201, "time": 1.7635e9 + 30, EVIL: 1.5, "sample": EVIL}) + "\n")
    path = write(root, "evil" + EVIL.replace("/", ""), evil, 200, f"[data]\ntext = [{json.dumps(EVIL)}]\n")
    with open(os.path.join(path, "notes.jsonl"), "w") as file:
        file.write(json.dumps({"time": 1.7635e9, "text": EVIL + " #tag"}) + "\n")
    with open(os.path.join(path, "samples.jsonl"), "w") as file:
        file.write(json.dumps({"step": EVIL, "time": EVIL, "number": EVIL, "prompt": EVIL, "text": EVIL}) + "\n")
    with open(os.path.join(path, "ranks.json"), "w") as file:
        file.write(json.dumps({"step_ms": EVIL, "compute_ms": [EVIL], "waited_ms": {EVIL: EVIL}}))
    with open(os.path.join(path, "alerts.jsonl"), "w") as file:
        file.write(json.dumps({"time": EVIL, "step": EVIL, "kind": EVIL, "severity": EVIL, "message": EVIL, "command": EVIL}) + "\n")
    traced(root)


def traced(root):
    """A run of 8 ranks with a trace, in which rank 5 is slow."""
    draw, events = random.Random(9), []
    path = write(root, "traced", ordinary(9, 30, ranks=8, slowest=5, excess=.4), 300, checkpoints=(300,))
    for rank in range(8):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        for step in range(20):
            begin, at = step * 50000, step * 50000
            for part, count in (("forward", 6), ("backward", 6)):
                for layer in range(count):
                    took = 2000 * (1.4 if rank == 5 else 1) * (1 + .05 * draw.random()) * (1 if part == "forward" else 1.5)
                    events.append({"ph": "X", "name": f"{part} layers.{layer}", "cat": part, "pid": rank, "tid": 0, "ts": at, "dur": took})
                    if part == "backward":
                        events.append({"ph": "X", "name": "reduce_scatter", "cat": "collective", "pid": rank, "tid": 1, "ts": at + took, "dur": 1200})
                    at += took
            events.append({"ph": "X", "name": f"step {step}", "cat": "step", "pid": rank, "tid": 0, "ts": begin, "dur": 49000})
    with open(os.path.join(path, "trace.json"), "w") as file:
        json.dump({"traceEvents": events}, file)


if __name__ == "__main__":
    import sys
    make(sys.argv[1])
