#!/usr/bin/env python3
"""Bytes on the wire of two islands per inner step, beside two data-parallel ranks.

Each pair lives in two network namespaces; bytes are those that the interface between them counts,
with TCP, TLS, HTTP/2, heartbeats and the coordinator's messages. Needs root and `ip`, Debian's
`iproute2`. What a run costs to begin and end is taken out by the difference of two lengths.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import time

from exposed import HOSTS, Link

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The demo's model on the fewest tokens: the bytes do not depend on them.
MODEL = ["--model.hidden_size=256", "--model.num_hidden_layers=6", "--model.num_attention_heads=8",
         "--model.num_key_value_heads=4", "--data.vocab_size=2048", "--train.context=16",
         "--train.micro_batch=1", "--device.threads=1", "--log.tensorboard=false",
         "--log.every=1000", "--data.held_out=0"]


def counted(link):
    """Bytes that both ends have sent."""
    total = 0
    for name, end in zip(link.names, link.ends):
        path = f"/sys/class/net/{end}/statistics/tx_bytes"
        total += int(subprocess.run(["ip", "netns", "exec", name, "cat", path], check=True,
                                    capture_output=True, text=True).stdout)
    return total


def start(args, link, side, words, as_host=()):
    return subprocess.Popen(["ip", "netns", "exec", link.names[side], *as_host, str(args.atoll),
                             *words],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(process):
    error = process.communicate()[1]
    if process.returncode != 0:
        raise SystemExit(error)


def common(args, run, steps):
    return ["train", f"--data.text={args.text}", f"--run.dir={args.work / run}",
            f"--train.steps={steps}", *MODEL]


def data_parallel(args, link, steps):
    before = counted(link)
    shutil.rmtree(args.work, ignore_errors=True)
    words = common(args, "ranks", steps) + ["--train.batch_size=2", "--backend=gloo", "--ranks=2",
                                            f"--rendezvous=tcp://{HOSTS[0]}:29500"]
    # Ranks of one host would share memory instead.
    ranks = [start(args, link, side, words + [f"--rank={side}"], ["unshare", "--pid", "--fork"])
             for side in (0, 1)]
    for rank in ranks:
        finish(rank)
    return counted(link) - before


def islands(args, link, codec, steps, inner_steps):
    before = counted(link)
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    authority = args.work / "authority"
    for words in (["init", authority], ["issue", authority, "order", "--host", HOSTS[0]],
                  ["issue", authority, "a", "--host", HOSTS[0]],
                  ["issue", authority, "b", "--host", HOSTS[1]]):
        subprocess.run([args.atoll, "certs", *map(str, words)], check=True, capture_output=True)
    identities = authority / "identities"
    order = start(args, link, 0, ["coordinator", "--dir", str(args.work / "order"), "--listen",
                                  f"{HOSTS[0]}:7411", "--identity", str(identities / "order")])
    time.sleep(0.5)
    both = []
    for side, name in enumerate("ab"):
        words = common(args, name, steps) + [
            "--train.batch_size=1", f"--island.coordinator={HOSTS[0]}:7411",
            f"--island.name={name}", f"--island.listen={HOSTS[side]}:7420",
            f"--island.identity={identities / name}", "--outer.islands=2",
            f"--outer.inner_steps={inner_steps}", f"--outer.codec={codec}", "--outer.grace_s=60"]
        both.append(start(args, link, side, words))
    for island in both:
        finish(island)
    finish(order)
    return counted(link) - before, outer_steps(args.work / "a")


def outer_steps(run):
    """Outer steps of a run: islands of different speed need a short one more at its end."""
    with open(run / "metrics.jsonl", encoding="utf-8") as lines:
        return max(record.get("outer_step", 0) for record in map(json.loads, lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", default=ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/islands-bytes")
    parser.add_argument("--inner-steps", type=int, default=500)
    parser.add_argument("--codecs", nargs="+", default=["f32", "bf16", "int8", "e3m0", "topk"])
    args = parser.parse_args()
    h = args.inner_steps
    with Link() as link:
        few, many = data_parallel(args, link, 10), data_parallel(args, link, 60)
        gradients = (many - few) / 50
        print(f"data parallel, Gloo: {gradients:,.0f} bytes a step, both directions\n")
        print(f"| codec | bytes a round of {h} steps | a step | data parallel to it |")
        print("|---|---|---|---|")
        for codec in args.codecs:
            (few, before), (many, after) = (islands(args, link, codec, n * h, h) for n in (1, 3))
            a_round = (many - few) / (after - before)
            print(f"| {codec} | {a_round:,.0f} | {a_round / h:,.0f} | "
                  f"{gradients * h / a_round:,.1f} |", flush=True)


if __name__ == "__main__":
    main()
