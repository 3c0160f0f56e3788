#!/usr/bin/env python3
"""Trains the same model on the same tokens in the same order with atoll and with PyTorch.

    python3 -m venv .venv-golden && .venv-golden/bin/pip install torch transformers numpy
    ./dev demo          # once: builds atoll and writes the text
    .venv-golden/bin/python tools/golden/train_torch.py [--family llama|gpt2]

The demo's model (or a GPT-2 of its size), recipe and text. Both start from one random Hugging Face directory that transformers writes. PyTorch reads the token
shards and takes the sample order from docs/data-order.md (data_order.py beside this file), so model,
loss, schedule, clipping, AdamW and data are each implemented twice. Prints both loss curves and fails
when a held-out loss differs by more than 2%.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import time

import numpy as np
import torch
import transformers

import data_order

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_split(corpus, split):
    """All tokens of a split, end to end (docs/data-format.md)."""
    parts = []
    for entry in json.loads((corpus / "corpus.json").read_text())["splits"][split]:
        raw = (corpus / entry["file"]).read_bytes()
        width, count = struct.unpack_from("<IQ", raw, 12)
        parts.append(np.frombuffer(raw, {2: "<u2", 4: "<u4"}[width], count, 88).astype(np.int64))
    return np.concatenate(parts)


def make_model(family, vocab, context):
    torch.manual_seed(0)
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=vocab, n_embd=256, n_layer=6, n_head=8, n_positions=context,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=256, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=4, intermediate_size=704, max_position_embeddings=context,
        rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=None, eos_token_id=0,
        initializer_range=0.02))


def write_config(directory):
    """Today's transformers writes rope_parameters; older ones, and atoll, know rope_theta."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope is not None:
        assert rope["rope_type"] == "default", rope
        config["rope_theta"] = rope["rope_theta"]
    path.write_text(json.dumps(config, indent=2))


def learning_rate(args, step):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    progress = (step - args.warmup) / max(args.steps - 1 - args.warmup, 1)
    low = args.min_ratio
    return args.lr * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * progress)))


def batch_at(tokens, args, first, count):
    rows = []
    for index in range(first, first + count):
        _, _, begin = data_order.sample(args.seed, len(tokens), args.context, index)
        rows.append(tokens[begin:begin + args.context + 1])
    return torch.from_numpy(np.stack(rows))


def loss_of(model, rows):
    logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def held_out_loss(model, tokens, context):
    """Every token but the first, in windows of `context` (docs/data-order.md)."""
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(tokens) - 1, context):
            row = torch.from_numpy(tokens[begin:begin + context + 1])[None]
            total += loss_of(model, row).item() * (row.shape[1] - 1)
            count += row.shape[1] - 1
    return total / count


def train_torch(model, args, corpus):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, args.beta2), eps=1e-8)
    tokens = read_split(corpus, "train")
    losses = []
    for step in range(args.steps):
        rows = batch_at(tokens, args, step * args.batch, args.batch)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, step)
        loss = loss_of(model, rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, held_out_loss(model, read_split(corpus, "heldout"), args.context)


def train_atoll(args, work, corpus):
    run = work / "run"
    subprocess.run(
        [args.atoll, "train", f"--run.dir={run}", f"--run.seed={args.seed}",
         f"--model.from={work / 'init'}", f"--data.shards={corpus}", f"--train.steps={args.steps}",
         f"--train.batch_size={args.batch}", f"--train.micro_batch={min(args.batch, 8)}",
         f"--train.context={args.context}", f"--optim.lr={args.lr}", "--optim.schedule=cosine",
         f"--optim.warmup_steps={args.warmup}", f"--optim.beta2={args.beta2}",
         f"--optim.min_lr_ratio={args.min_ratio}", "--log.every=1", "--log.tensorboard=false"],
        check=True, stdout=subprocess.DEVNULL)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    return losses, next(r["held_out_loss"] for r in records if "held_out_loss" in r)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", default=ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/golden-train")
    parser.add_argument("--family", default="llama", choices=["llama", "gpt2"])
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--min-ratio", type=float, default=0.02)
    parser.add_argument("--beta2", type=float, default=0.99)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    work = args.work / args.family
    subprocess.run(["rm", "-rf", work], check=True)
    work.mkdir(parents=True)
    corpus = work / "corpus"
    subprocess.run([args.atoll, "tokenize", args.text, "--out", corpus, "--vocab-size", "2048"],
                   check=True)
    vocab = json.loads((corpus / "corpus.json").read_text())["tokenizer"]["vocab_size"]
    model = make_model(args.family, vocab, args.context)
    model.save_pretrained(work / "init")
    write_config(work / "init")
    (work / "init" / "tokenizer.json").write_bytes((corpus / "tokenizer.json").read_bytes())

    start = time.time()
    ours, our_held_out = train_atoll(args, work, corpus)
    middle = time.time()
    theirs, their_held_out = train_torch(model, args, corpus)
    end = time.time()
    print("step   atoll      torch      difference")
    for step in sorted({0, 1, 9, *range(199, args.steps, 200), args.steps - 1}):
        if step < args.steps:
            print(f"{step + 1:5d}  {ours[step]:.6f}  {theirs[step]:.6f}  "
                  f"{ours[step] - theirs[step]:+.2e}")
    ratio = our_held_out / their_held_out - 1
    print(f"held-out  atoll {our_held_out:.4f}  torch {their_held_out:.4f}  ({100 * ratio:+.3f}%)")
    print(f"seconds  atoll {middle - start:.0f}  torch {end - middle:.0f}")
    sys.exit(0 if abs(ratio) < 0.02 else "the held-out losses differ by more than 2%")


if __name__ == "__main__":
    main()
