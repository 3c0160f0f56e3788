#!/usr/bin/env python3
"""Runs of `atoll train` on a GPU: do they repeat, and how fast are they?

    runs.py repeat --atoll BIN [--device cuda] [--steps 50] [--attention own|cudnn]
    runs.py features --atoll BIN [--device cuda]
    runs.py kernels --atoll BIN [--model 124m|1b] [--attention own|cudnn] [--fp8 off|tensor|blocks]
    runs.py mfu --atoll BIN [--model 124m|1b] [--attention own|cudnn] [--fp8 off|tensor|blocks]
                [--python PYTHON] [--llmc DIR]

repeat: a small model with attention on tensor cores, in bf16. Twice the same steps give the same
weights, as do half of them and a run that goes on from there, and steps as graphs (device.graphs), whose
time is told beside that of steps without; losses are as near to the CPU's in f32 as
twice the CPU's own in bf16. `--device fake_cuda` runs it without a GPU. `--attention cudnn` sets
device.attention; exit code 77 where cuDNN cannot be used.

features: short runs with each of what a trainer may be asked for, in f32: losses are those of the CPU but
for the order of sums, and a model that the GPU has trained writes the CPU's text and has its loss, with
each kind of --weights. Products of 8 bits (train.fp8) are in bf16, within what that rounds.

kernels: how long each kernel of a step takes, in the order of what they take together, by CUPTI
(bench/cuda/kernel_times.cpp). Of 20 steps and what comes before them.

mfu: tokens per second and model FLOPs utilisation, with the formula, of atoll, of PyTorch compiled
(--python, which has torch for CUDA) and of llm.c (--llmc, where `make train_gpt2cu` has been run), in
turn. Exit code 1 below the bar: 52% at 124M, 60% at 1B. Needs a GPU. With --fp8 the share is still that
of the GPU's rate in bf16, and has no bar. Exit code 77 where the GPU has no such products.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))
import shapes  # noqa: E402
import step_shapes  # noqa: E402

H100_TFLOPS = 989  # dense bf16, of an H100 or H200 (NVIDIA's data sheets); --peak for another
BARS = {"124m": 52.0, "1b": 60.0}  # % of that
MODELS = {
    "124m": step_shapes.Shape("gpt2", 50304, 768, 12, 12, 12, 3072, 32, 1024),
    "1b": step_shapes.Shape("llama", 128256, 2048, 16, 32, 8, 8192, 32, 1024),
}


# Parts of a step of PyTorch's, which keeps residuals in f32: all of it would have no room.
PEER_MICRO_BATCHES = {"124m": 1, "1b": 4}


def config_of(shape):
    """config.json of a shape, as atoll and transformers read it."""
    if shape.family == "gpt2":
        return shapes.GPT2.config | {
            "vocab_size": shape.vocab, "n_embd": shape.width, "n_layer": shape.layers,
            "n_head": shape.heads, "n_inner": shape.inner, "n_positions": shape.context}
    return shapes.DEMO.config | {
        "vocab_size": shape.vocab, "hidden_size": shape.width, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.width // shape.heads, "intermediate_size": shape.inner,
        "max_position_embeddings": shape.context}


def matmul_parameters(shape):
    """Of blocks, and the head once; neither positions nor norms."""
    head_dim = shape.width // shape.heads
    attention = shape.width * head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    mlp = (2 if shape.family == "gpt2" else 3) * shape.width * shape.inner
    return shape.layers * (attention + mlp) + shape.vocab * shape.width


def flops_per_token(shape):
    return 6 * matmul_parameters(shape) + 6 * shape.layers * shape.width * shape.context


class Runs:
    """Runs of one model over one corpus, in a folder of their own."""

    def __init__(self, atoll, shape, folder, micro_batches=1, base=None):
        self.atoll, self.shape, self.folder = atoll, shape, folder
        self.batch_size = micro_batches * shape.batch
        text = folder / "text.md"
        text.write_text("\n".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md"))))
        self.corpus = shapes.make_corpus(atoll, text, folder / "corpus")
        config = folder / "config.json"
        config.write_text(json.dumps(config_of(shape), indent=2))
        self.environment = {}
        self.model = f"--model.from={base}" if base else f"--model.config={config}"

    def command(self, name, steps, *settings):
        return [str(self.atoll), "train", f"--run.dir={self.folder / name}",
                f"--data.shards={self.corpus}", self.model, f"--train.steps={steps}",
                f"--train.batch_size={self.batch_size}", f"--train.micro_batch={self.shape.batch}",
                f"--train.context={self.shape.context}", "--optim.schedule=constant",
                "--optim.lr=3e-4", "--log.every=1", "--log.tensorboard=false",
                "--eval.max_tokens=1", *settings]

    def records(self, name):
        """Of the steps that a run has told whole."""
        metrics = self.folder / name / "metrics.jsonl"
        lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
        return [record for record in map(json.loads, lines) if "step_ms" in record]

    def train(self, name, steps, *settings):
        """Records of the steps of `atoll train` up to `steps`; a run of this name goes on."""
        command = self.command(name, steps, *settings)
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            give_up(command, done.stderr)
        return self.records(name)

    def first_steps(self, name, count, *settings):
        """Records of the first steps of a run that is killed then: a checkpoint of a large model
        takes longer than they do."""
        command = self.command(name, 100 * count, *settings)
        with tempfile.TemporaryFile("w+") as errors:
            run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors,
                                   env=os.environ | self.environment)
            while len(self.records(name)) < count and run.poll() is None:
                time.sleep(0.1)
            has_ended = run.poll() is not None
            run.kill()
            run.wait()
            errors.seek(0)
            if has_ended:
                give_up(command, errors.read())
        return self.records(name)[:count]

    def weights(self, name):
        """A hash of all that the last checkpoint has of the model and the optimizer."""
        last = max((self.folder / name / "checkpoints").glob("*/model*.safetensors"),
                   key=lambda path: [int(n) for n in re.findall(r"\d+", path.parent.name)]).parent
        digest = hashlib.sha256()
        for path in sorted(last.glob("*.safetensors")):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()


def give_up(command, errors):
    print(f"{' '.join(command)}\n{errors[-3000:]}", file=sys.stderr)
    cannot = re.search(r"(device.attention|train.fp8) = \w+ cannot be used", errors)
    sys.exit(77 if cannot else 1)


def losses_of(records):
    return [record["loss"] for record in records]


def largest_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def repeat(args, folder):
    heads = 1 if args.device == "fake_cuda" else 4
    shape = step_shapes.Shape("llama", 2048, 64 * heads, 2, heads, heads, 128, 2, 32 * heads)
    # Two micro-batches a step, and draws that differ from one to the next: what a graph must not keep.
    runs = Runs(args.atoll, shape, folder, micro_batches=2)
    dropout = "--train.dropout=0.1"
    device = [f"--device.kind={args.device}", f"--device.attention={args.attention}",
              "--train.dtype=bf16", dropout]
    steps, half = args.steps, args.steps // 2
    problems = []

    plain = runs.train("first", steps, *device)
    first = losses_of(plain)
    runs.train("again", steps, *device)
    if runs.weights("first") != runs.weights("again"):
        problems.append(f"{steps} steps twice: other bits")
    graphs = runs.train("graphs", steps, *device, "--device.graphs=true")
    if runs.weights("first") != runs.weights("graphs"):
        problems.append(f"{steps} steps as graphs: other bits")
    runs.train("halves", half, *device)
    runs.train("halves", steps, *device)
    if runs.weights("first") != runs.weights("halves"):
        problems.append(f"{half} steps, and a run that goes on from there: other bits")
    cpu = losses_of(runs.train("cpu", steps, "--train.dtype=f32", dropout))
    cpu_bf16 = losses_of(runs.train("cpu-bf16", steps, "--train.dtype=bf16", dropout))
    bound = 2 * largest_difference(cpu, cpu_bf16)
    apart = largest_difference(cpu, first)
    if not apart <= bound:  # NaN too
        problems.append(f"losses are {apart:.4f} from the CPU's in f32; twice bf16 is {bound:.4f}")
    print(f"{steps} steps on {args.device}, attention {args.attention}: loss {first[0]:.3f} to "
          f"{first[-1]:.3f}, at most {apart:.2e} from the CPU's in f32; bound {bound:.2e}")
    middle = [statistics.median(record["step_ms"] for record in records[steps // 5:])
              for records in (plain, graphs)]
    print(f"a step takes {middle[0]:.2f} ms, as graphs {middle[1]:.2f} ms")
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


# Settings of runs that are compared with a CPU's.
FEATURES = {
    "plain": [],
    "recompute full": ["--train.recompute=full"],
    "recompute selective": ["--train.recompute=selective"],
    "documents": ["--data.packing=masked"],
    "dropout, graphs": ["--train.dropout=0.1", "--device.graphs=true"],
    "Muon": ["--optim.kind=muon"],
    "Lion": ["--optim.kind=lion"],
    "SGD": ["--optim.kind=sgd"],
    "offload to the host": ["--offload.optimizer=host"],
    "offload to a file": ["--offload.optimizer=file"],
}
OF_A_GPU = ("--device.graphs=true", "--offload.optimizer=host")  # a CPU has its state in memory
# f32 sums in another order, and AdamW's first steps, which go by a gradient's sign.
FEATURES_BOUND = 2e-3
IN_BF16 = {
    "products of 8 bits": ["--train.fp8=tensor"],
    "products of 8 bits in blocks": ["--train.fp8=blocks"],
}
BF16_BOUND = 5e-3  # some numbers are rounded to their other neighbour


def features(args, folder):
    width = 32 if args.device == "fake_cuda" else 256
    shape = step_shapes.Shape("llama", 2048, width, 2, 4, 2, 2 * width, 2, width // 2)
    runs = Runs(args.atoll, shape, folder, micro_batches=2)
    problems = []
    count = 6

    def compare(name, runs, settings, bound=FEATURES_BOUND):
        try:
            on_cpu, on_device = (
                losses_of(runs.train(f"{name} {kind}", count, f"--device.kind={kind}",
                                     *[s for s in settings if kind != "cpu" or s not in OF_A_GPU]))
                for kind in ("cpu", args.device))
        except SystemExit as ended:
            if ended.code == 77:
                print(f"{name}: not on this GPU")
            else:
                problems.append(f"{name}: no run")
            return
        apart = largest_difference(on_cpu, on_device)
        print(f"{name}: loss {on_device[0]:.3f} to {on_device[-1]:.3f}, {apart:.1e} from the CPU's")
        if not apart <= bound:
            problems.append(f"{name}: {apart:.1e} from the CPU's losses")

    for name, settings in FEATURES.items():
        compare(name, runs, settings)
    # Their products add a bias, which a Llama's do not.
    (folder / "gpt2").mkdir()
    gpt2 = Runs(args.atoll, dataclasses.replace(shape, family="gpt2", kv_heads=shape.heads),
                folder / "gpt2", micro_batches=2)
    for name, settings in IN_BF16.items():
        compare(name, runs, ["--train.dtype=bf16", *settings], BF16_BOUND)
        compare(f"{name}, GPT-2", gpt2, ["--train.dtype=bf16", *settings], BF16_BOUND)
    model = folder / f"plain {args.device}"
    adapted = Runs(args.atoll, shape, folder, micro_batches=2, base=model)
    compare("LoRA", adapted, ["--lora.rank=4"])

    def says(what, kind, *options):
        done = subprocess.run([str(args.atoll), what, str(model), f"--device={kind}", *options],
                              text=True, capture_output=True, check=False)
        if done.returncode != 0:
            problems.append(f"{what} on {kind}: {done.stderr[-1000:]}")
        return done.stdout

    uses = {"generate": ["--prompt=The run", "--max-tokens=40", "--greedy"],
            "eval": [f"--text={folder / 'text.md'}", "--max-tokens=2000", f"--context={shape.context}"]}
    for weights in ("f32", "bf16", "int8", "w8a8"):
        for what, options in uses.items():
            if what == "eval" and weights == "w8a8":  # which is for tasks
                continue
            texts = [says(what, kind, f"--weights={weights}", *options)
                     for kind in ("cpu", args.device)]
            # Of an evaluation, its loss to four digits.
            loss = [re.search(r"loss\D*(\d+\.\d{3})", text) for text in texts]
            same = texts[0] == texts[1] or (all(loss) and loss[0][1] == loss[1][1])
            print(f"{what}, {weights}: {'the same' if same else 'not the same'}")
            if not same:
                problems.append(f"{what} {weights}: {texts[0]!r} and {texts[1]!r}")
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


def torch_speed(args, shape, micro_batches):
    part = dataclasses.replace(shape, batch=shape.batch // micro_batches)
    done = subprocess.run([args.python, pathlib.Path(__file__).with_name("torch_gpu_step.py"),
                           json.dumps(dataclasses.asdict(part)), "--steps", "20",
                           "--micro-batches", str(micro_batches)],
                          text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"PyTorch: {done.stderr[-3000:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return shape.tokens / statistics.median(said["step_seconds"][5:])


def llmc_speed(args, shape):
    done = subprocess.run(["./train_gpt2cu", "-b", str(shape.batch), "-t", str(shape.context), "-d",
                           str(shape.tokens), "-e", "d12", "-x", "20", "-v", "0", "-s", "0", "-r", "0"],
                          cwd=args.llmc, text=True, capture_output=True, check=False)
    found = [float(speed) for speed in re.findall(r"([0-9.]+) tok/s", done.stdout)]
    if not found:
        sys.exit(f"llm.c: {done.stdout[-2000:]}{done.stderr[-1000:]}")
    return statistics.median(found[5:])


def kernels(args, folder):
    if not args.library.exists():
        print(f"there is no {args.library}: cmake --build build/cuda --target kernel_times, with CUPTI")
        return 77
    times = folder / "times.txt"
    runs = Runs(args.atoll, MODELS[args.model], folder)
    runs.environment = {"CUDA_INJECTION64_PATH": str(args.library.resolve()), "KERNEL_TIMES": str(times)}
    records = runs.first_steps("run", 20, "--device.kind=cuda", "--train.dtype=bf16",
                               f"--device.attention={args.attention}", f"--train.fp8={args.fp8}",
                               "--train.recompute=none")
    if not times.exists() or not times.read_text():
        print("CUPTI has told nothing: may this user profile? (RmProfilingAdminOnly)")
        return 77
    rows = [(int(calls), float(us), name) for calls, us, name in
            (line.split(" ", 2) for line in times.read_text().splitlines())]
    print(f"{args.model}, attention {args.attention}, fp8 {args.fp8}: "
          f"{statistics.median(record['step_ms'] for record in records[5:]):.1f} ms a step\n")
    print("| calls | ms in all | us each | |\n|---|---|---|---|")
    for calls, us, name in rows[:60]:
        # run_kernel<atoll's struct of operands>(the same): the struct is enough.
        name = re.sub(r"void atl::cuda::run_kernel<(.*?)>\(.*\) \[", r"\1 [", name)
        name = name.replace("atl::ops::cuda::", "").replace("atl::", "")
        print(f"| {calls} | {us / 1000:.1f} | {us / calls:.1f} | {name[:100]} |")
    return 0


def mfu(args, folder):
    shape = MODELS[args.model]
    runs = Runs(args.atoll, shape, folder)
    per_token, peak = flops_per_token(shape), 1e12 * args.peak

    def atoll_speed(turn):
        records = runs.first_steps(f"run{turn}", 20, "--device.kind=cuda", "--train.dtype=bf16",
                                   f"--device.attention={args.attention}", f"--train.fp8={args.fp8}",
                                   "--train.recompute=none")
        shutil.rmtree(folder / f"run{turn}")
        return statistics.median(record["tokens_per_s"] for record in records[5:])

    systems = {"atoll": atoll_speed}
    if args.python:
        systems["PyTorch, compiled"] = lambda turn: torch_speed(
            args, shape, PEER_MICRO_BATCHES[args.model])
    if args.llmc and shape.family == "gpt2":
        systems["llm.c"] = lambda turn: llmc_speed(args, shape)
    speeds = {name: [] for name in systems}
    for turn in range(args.rounds):
        for name, measure in systems.items():
            try:
                speeds[name].append(measure(turn))
            except SystemExit as problem:  # of one system: the others are told
                if name == "atoll":
                    raise
                print(f"not measured: {problem}", file=sys.stderr)
    print(f"{args.model}, {shape.batch} x {shape.context} tokens, attention {args.attention}, fp8 {args.fp8}. "
          f"MFU = tok/s x (6 N + 6 L C T) / peak, N = {matmul_parameters(shape):,} (no positions, the head "
          f"once), L = {shape.layers}, C = {shape.width}, T = {shape.context}; peak {args.peak} TFLOP/s")
    print("| | tok/s | MFU | atoll's to it |\n|---|---|---|---|")
    ours = statistics.median(speeds["atoll"])
    for name, found in speeds.items():
        if not found:
            print(f"| {name} | not measured | | |")
            continue
        speed = statistics.median(found)
        print(f"| {name} | {speed:,.0f} | {100 * speed * per_token / peak:.1f}% | {ours / speed:.2f} |")
    share = 100 * ours * per_token / peak
    if args.fp8 != "off":
        return 0
    print(f"the bar is {BARS[args.model]}%: {'met' if share >= BARS[args.model] else 'NOT MET'}")
    return 0 if share >= BARS[args.model] else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["repeat", "features", "kernels", "mfu"])
    parser.add_argument("--atoll", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda", choices=["cuda", "fake_cuda"])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--attention", default="own", choices=["own", "cudnn"])
    parser.add_argument("--fp8", default="off", choices=["off", "tensor", "blocks"])
    parser.add_argument("--model", default="124m", choices=MODELS)
    parser.add_argument("--python", help="a Python with torch for CUDA")
    parser.add_argument("--llmc", type=pathlib.Path, help="llm.c, built")
    parser.add_argument("--library", type=pathlib.Path, help="of kernels",
                        default=ROOT / "build/cuda/bench/libkernel_times.so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak", type=float, default=H100_TFLOPS, help="TFLOP/s of the GPU in bf16")
    args = parser.parse_args()
    args.atoll = args.atoll.resolve()
    with tempfile.TemporaryDirectory() as folder:
        parts = {"repeat": repeat, "features": features, "kernels": kernels, "mfu": mfu}
        return parts[args.what](args, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
