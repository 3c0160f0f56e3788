#!/usr/bin/env python3
"""A training step on two threads, f32, AdamW and clipping: atoll beside PyTorch and llm.c.

    python3 -m venv .venv-peers && .venv-peers/bin/pip install torch numpy
    python3 bench/peers/step.py --python .venv-peers/bin/python
    git clone https://github.com/karpathy/llm.c; apt install python3-torch
    python3 bench/peers/step.py --shapes gpt2-b4-t256 --llmc llm.c --old-python /usr/bin/python3

In a round each system takes its steps once, one after the other; a figure is the median over the
rounds of a round's median step. The models of PyTorch are in torch_models.py: plain modules with
the library's fused attention, loss and optimizer. `--old-python` is a PyTorch before 2.0 (Debian's),
with its BLAS set to the right kernel.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys

import quiet
import step_shapes

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def last_json(output):
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


def call(command, **environment):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, **environment), check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command}\n{done.stderr[-3000:]}")
    return done.stdout


def run_atoll(args, name, bf16=None):
    shape = step_shapes.SHAPES[name]
    dtype = ["--train.dtype=bf16", f"--device.bf16={bf16}"] if bf16 else []
    said = last_json(call([args.atoll, "bench", "step", *shape.settings(), "--device.threads=2",
                           *dtype, "--json", "--warmup=0", f"--steps={args.steps}"]))
    planned = said["planned_bytes"] + said["program_bytes"]
    return said | {"note": f"memory {said['peak_resident_bytes'] / planned:.3f} of "
                           "the plan"}


def openblas_kernels():
    """The fastest that the CPU has: for those it does not know OpenBLAS 0.3 takes slow ones."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return "SKYLAKEX" if "avx512f" in flags else "HASWELL"


def run_torch(args, name, compiled=False, old=False):
    python = args.old_python if old else args.python
    environment = {"OMP_NUM_THREADS": "2"}
    if old:
        environment |= {"OPENBLAS_CORETYPE": openblas_kernels(), "OPENBLAS_NUM_THREADS": "2"}
    command = [python, HERE / "torch_step.py", name, "--steps", args.steps]
    command += (["--compile"] if compiled else []) + (["--bf16"] if args.bf16 else [])
    said = last_json(call(command, **environment))
    return said | {"note": "torch " + said["version"]}


def build_llmc(args, shape):
    """Its CPU trainer at our sizes, with weights and tokens of the format that it reads."""
    work = args.work / "llmc"
    work.mkdir(parents=True, exist_ok=True)
    source = (args.llmc / "train_gpt2.c").read_text()
    source = source.replace("int B = 4;", f"int B = {shape.batch};", 1)
    source = source.replace("int T = 64;", f"int T = {shape.context};", 1)
    source = re.sub(r"step <= 40", f"step <= {args.steps}", source)
    source = source.replace("step % 10 == 0", "0").replace("step % 20 == 0", "0")
    (work / "train_gpt2.c").write_text(source)
    call(["cc", "-O3", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-Wno-unused-result", f"-I{args.llmc}",
          work / "train_gpt2.c", "-lm", "-lgomp", "-o", work / "train_gpt2"])
    width, layers, vocab = shape.width, shape.layers, 50304
    header = [20240326, 3, 1024, shape.vocab, layers, shape.heads, width, vocab]
    elements = (vocab + 1024) * width + layers * (12 * width * width + 13 * width) + 2 * width
    # A cheap pattern of small numbers: what they are costs no time, that they are there does.
    with open(work / "gpt2_124M.bin", "wb") as file:
        file.write(struct.pack("<256i", *header, *([0] * 248)))
        piece = struct.pack("<1024f", *(0.02 * ((i * 37 % 101) / 50 - 1) for i in range(1024)))
        for _ in range(elements // 1024 + 1):
            file.write(piece)
    for split in ("train", "val"):
        folder = work / "dev/data/tinyshakespeare"
        folder.mkdir(parents=True, exist_ok=True)
        count = shape.tokens * 4 + 1
        with open(folder / f"tiny_shakespeare_{split}.bin", "wb") as file:
            file.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)))
            file.write(struct.pack(f"<{count}H", *(i * 7919 % shape.vocab for i in range(count))))
    return work


def run_llmc(args, name):
    work = build_llmc(args, step_shapes.SHAPES[name])
    done = subprocess.run([str(work / "train_gpt2")], cwd=work, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, OMP_NUM_THREADS="2"))
    seconds = [float(ms) / 1e3 for ms in re.findall(r"took ([0-9.]+) ms", done.stdout)]
    if not seconds:
        raise SystemExit(done.stdout[-2000:])
    return {"step_seconds": seconds, "peak_resident_bytes": 0, "note": "gcc -Ofast, OpenMP"}


def compare(args, name):
    shape = step_shapes.SHAPES[name]
    systems = {"atoll": lambda a, n: run_atoll(a, n, args.bf16)}
    if args.bf16:
        systems["atoll, f32"] = run_atoll
    if args.python:
        systems["PyTorch"] = run_torch
        systems["PyTorch, compiled"] = lambda a, n: run_torch(a, n, compiled=True)
    if args.old_python:
        systems["PyTorch, old"] = lambda a, n: run_torch(a, n, old=True)
    if args.llmc and shape.family == "gpt2":
        systems["llm.c"] = run_llmc
    calm = quiet.Quiet(args.others, args.patience)
    speeds, memory, notes = {}, {}, {}
    for _ in range(args.rounds):
        for system, run in systems.items():
            said = calm.measure(lambda run=run: run(args, name))
            warm = said["step_seconds"][min(args.warm, len(said["step_seconds"]) - 1):]
            speeds.setdefault(system, []).append(shape.tokens / statistics.median(warm))
            memory.setdefault(system, []).append(said["peak_resident_bytes"] / 2**20)
            notes[system] = said["note"]
            print(f"  {name} {system} {speeds[system][-1]:.1f} tok/s", file=sys.stderr, flush=True)
    print(f"\n{name}: {shape.batch} x {shape.context} tokens a step, {args.rounds} rounds of "
          f"{args.steps} steps; {calm}\n")
    print("| | tok/s | atoll's to it | peak MiB | atoll's to it | |")
    print("|---|---|---|---|---|---|")
    for system in systems:
        ratios = sorted(a / b for a, b in zip(speeds["atoll"], speeds[system]))
        peak = statistics.median(memory[system])
        share = f"{statistics.median(memory['atoll']) / peak:.2f}" if peak else ""
        print(f"| {system} | {statistics.median(speeds[system]):.1f} | "
              f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) | "
              f"{f'{peak:.0f}' if peak else ''} | {share} | {notes[system]} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--python", help="with PyTorch")
    parser.add_argument("--bf16", nargs="?", const="auto", choices=["auto", "f32", "library", "amx"],
                        help="of atoll, by this device.bf16, beside its f32; autocast of PyTorch")
    parser.add_argument("--old-python", help="with Debian's PyTorch 1.13")
    parser.add_argument("--llmc", type=pathlib.Path, help="a clone of llm.c")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/peers-step")
    parser.add_argument("--shapes", nargs="+", choices=step_shapes.SHAPES,
                        default=list(step_shapes.SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm", type=int, default=2, help="steps left out of a run's median")
    quiet.add_options(parser)
    args = parser.parse_args()
    for name in args.shapes:
        compare(args, name)


if __name__ == "__main__":
    main()
