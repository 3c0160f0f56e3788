#!/usr/bin/env python3
"""Exposed communication over links of several rates, beside max(0, communication - backward).

    sudo bench/exposed.py [--mbit 100 200 400 800] [--rounds 7]

Makes two network namespaces with a veth pair between them, lets tc's token bucket filter (tbf)
limit each direction, and runs one rank of bench/ranks_bench in each, over TCP. Needs root, iproute2 and a
build with Gloo; takes everything away again.
"""

import argparse
import json
import os
import pathlib
import subprocess

from peers import quiet

ROOT = pathlib.Path(__file__).resolve().parents[1]
HOSTS = ("10.217.0.1", "10.217.0.2")
# The demo's model with eight sequences a rank: long enough a backward to hide something behind it.
MODEL = ("--model.family=llama", "--model.hidden_size=256", "--model.num_hidden_layers=6",
         "--model.num_attention_heads=8", "--model.num_key_value_heads=4",
         "--model.intermediate_size=704", "--data.vocab_size=2048", "--train.context=256",
         "--train.batch_size=16", "--train.micro_batch=8", "--device.threads=1")


class Link:
    """Two namespaces on this machine and the only way between them."""

    def __init__(self):
        self.names = [f"atoll-{os.getpid()}-{i}" for i in range(2)]
        self.ends = [f"atl{os.getpid() % 100000}{side}" for side in "ab"]

    def __enter__(self):
        for name in self.names:
            call("ip", "netns", "add", name)
        call("ip", "link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
        for name, end, host in zip(self.names, self.ends, HOSTS):
            call("ip", "link", "set", end, "netns", name)
            call("ip", "-n", name, "address", "add", f"{host}/24", "dev", end)
            call("ip", "-n", name, "link", "set", end, "up")
            call("ip", "-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def limit(self, mbit):
        # A burst of 4 ms, and room for 50 ms to wait.
        burst = max(mbit * 1000 * 4 // 8, 64 << 10)
        for name, end in zip(self.names, self.ends):
            call("tc", "-n", name, "qdisc", "replace", "dev", end, "root", "tbf", "rate",
                 f"{mbit}mbit", "burst", str(burst), "latency", "50ms")


def call(*command):
    subprocess.run(command, check=True)


def measure(args, link, port):
    ranks = [subprocess.Popen(
        ["ip", "netns", "exec", name, str(args.bench), "--rank", str(rank), "--ranks", "2",
         "--rendezvous", f"tcp://{HOSTS[0]}:{port}", "--rounds", str(args.rounds), *MODEL,
         *args.settings], stdout=subprocess.PIPE, text=True)
        for rank, name in enumerate(link.names)]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise SystemExit("a rank failed")
    return json.loads(outputs[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=pathlib.Path,
                        default=ROOT / "build/release/bench/ranks_bench")
    parser.add_argument("--mbit", nargs="+", type=int, default=[100, 200, 400, 800])
    parser.add_argument("--rounds", type=int, default=7)
    quiet.add_options(parser)
    parser.add_argument("settings", nargs="*", help="--key=value, after --")
    args = parser.parse_args()
    print("| link, Mbit/s | communication alone, ms | backward | expected | exposed | difference, "
          "% of expected | last bucket alone |\n|---|---|---|---|---|---|---|")
    calm = quiet.Quiet(args.others, args.patience)
    with Link() as link:
        for i, mbit in enumerate(args.mbit):
            link.limit(mbit)
            got = calm.measure(lambda: measure(args, link, 29600 + i))
            last = got["comm_ms"] * got["last_bucket_bytes"] / got["bytes"]
            expected, exposed = got["expected_ms"], got["exposed_ms"]
            difference = f"{100 * (exposed / expected - 1):+.1f}" if expected > 0 else ""
            print(f"| {mbit} | {got['comm_ms']:.0f} | {got['backward_ms']:.0f} | {expected:.0f} | "
                  f"{exposed:.0f} | {difference} | {last:.0f} |", flush=True)
    print(f"\n{calm}")


if __name__ == "__main__":
    main()
