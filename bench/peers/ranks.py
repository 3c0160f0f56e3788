#!/usr/bin/env python3
"""Two ranks of one thread each: atoll beside PyTorch DDP, FSDP2 and DeepSpeed's ZeRO 2 over Gloo.

    python3 -m venv .venv-peers
    .venv-peers/bin/pip install torch transformers numpy wheel
    DS_BUILD_OPS=0 .venv-peers/bin/pip install --no-build-isolation deepspeed
    .venv-peers/bin/python bench/peers/ranks.py [--models demo gpt2] [--rounds 5]

All start from the same weights, which transformers writes, and read the same samples in the same
order, in f32 with AdamW and clipping: the losses printed must agree. In a round every system runs
once, one after the other; atoll shares what the peer shares (dp.zero), among processes
(--backend=gloo). A ratio is of two runs of the same round.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

import torch
import transformers

import quiet
import runs
import shapes

HERE = pathlib.Path(__file__).resolve().parent
# A peer's script, and what of atoll it is compared with.
PEERS = {"torch_ddp": 0, "torch_fsdp2": 3, "deepspeed_zero2": 2}


def write_init(shape, directory, corpus):
    """A Hugging Face directory with random weights, which every system starts from."""
    shapes.write_config(shape, directory)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(directory)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    shapes.write_config(shape, directory)  # as atoll and older versions of transformers know it
    (directory / "tokenizer.json").write_bytes((corpus / "tokenizer.json").read_bytes())


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_peer(args, name, shape, steps, compiled):
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                       WORLD_SIZE="2", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                       DS_ACCELERATOR="cpu", DS_LOG_LEVEL="error")
    python = args.deepspeed_python if name.startswith("deepspeed") else sys.executable
    command = [str(python), str(HERE / f"{name}.py"), "--model", shape.name,
               "--init", str(args.work / shape.name), "--corpus", str(args.work / "corpus"),
               "--steps", str(steps)] + (["--compile"] if compiled else [])
    ranks = [subprocess.Popen(command, env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for rank in range(2)]
    outputs = [rank.communicate() for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise SystemExit(f"{name} failed:\n{outputs[0][1][-3000:]}")
    said = json.loads(next(line for line in outputs[0][0].splitlines() if line.startswith("{")))
    return statistics.median(said["step_ms"][args.warm:]), said["loss"][2]


def run_atoll(args, shape, steps, zero, backend):
    run = runs.Run(args.atoll, args.work / "run", shape, args.work / "corpus", 2, steps,
                   f"--backend={backend}", f"--dp.zero={zero}",
                   model=[f"--model.from={args.work / shape.name}"])
    records = run.finish()
    return runs.step_ms(records, args.warm), records[2]["loss"]


def compare(args, shape):
    steps = args.steps or {"demo": 60, "gpt2": 9}[shape.name]
    names = [(peer, compiled) for peer in args.peers for compiled in args.compile]
    ours = [(args.backend, zero) for zero in dict.fromkeys(PEERS[peer] for peer in args.peers)]
    ours += [("threads", 1)]
    speeds, losses = {}, {}
    calm = quiet.Quiet(args.others, args.patience)
    for _ in range(args.rounds):
        for case in ours + names:
            if case in names:
                ms, loss = calm.measure(lambda: run_peer(args, case[0], shape, steps, case[1]))
            else:
                ms, loss = calm.measure(lambda: run_atoll(args, shape, steps, case[1], case[0]))
            speeds.setdefault(case, []).append(2e3 * shape.tokens / ms)
            losses[case] = loss
            print(f"  {case} {speeds[case][-1]:.1f} tok/s", file=sys.stderr, flush=True)
    print(f"\n{shape.name}: {shape.tokens} tokens a rank and step, {steps} steps, "
          f"{args.rounds} rounds; {calm}\n")
    print("| | tok/s | atoll's with the same dp.zero | ratio | loss at step 3 |")
    print("|---|---|---|---|---|")
    for case in ours:
        print(f"| atoll, --backend={case[0]} --dp.zero={case[1]} | "
              f"{runs.describe(speeds[case], 0)} | | | {losses[case]:.6f} |")
    for peer, compiled in names:
        theirs, mine = speeds[peer, compiled], speeds[args.backend, PEERS[peer]]
        ratios = [a / b for a, b in zip(mine, theirs)]
        print(f"| {peer}{', compiled' if compiled else ''} | {runs.describe(theirs, 0)} | "
              f"{runs.describe(mine, 0)} | {runs.describe(ratios)} | "
              f"{losses[peer, compiled]:.6f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path,
                        default=shapes.ROOT / "build/release/bin/atoll")
    parser.add_argument("--deepspeed-python", type=pathlib.Path, default=sys.executable,
                        help="of another virtual environment, if it lives there")
    parser.add_argument("--text", default=shapes.ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=shapes.ROOT / "runs/peers")
    parser.add_argument("--models", nargs="+", choices=shapes.SHAPES, default=["demo", "gpt2"])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--backend", default="gloo", choices=["gloo", "mpi", "threads"])
    parser.add_argument("--compile", nargs="+", type=int, choices=[0, 1], default=[0],
                        help="0: as it is, 1: with torch.compile")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warm", type=int, default=3, help="steps left out of a run's median")
    quiet.add_options(parser)
    args = parser.parse_args()
    versions = [f"torch {torch.__version__}", f"transformers {transformers.__version__}"]
    print(", ".join(versions))
    corpus = shapes.make_corpus(args.atoll, args.text, args.work / "corpus")
    for name in args.models:
        write_init(shapes.SHAPES[name], args.work / name, corpus)
        compare(args, shapes.SHAPES[name])


if __name__ == "__main__":
    main()
