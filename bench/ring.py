#!/usr/bin/env python3
"""All-reduce between hosts of a small network: direct beside the ring.

    sudo bench/ring.py [--hosts 8] [--mbit 200] [--mib 16] [--rounds 5]

Makes a network namespace for each host and two switches (bridges) of half of the hosts each, with a
trunk between them. tc's token bucket filter (tbf) limits what each host sends and receives, and in
some cases the trunk or one host. One rank of bench/ring_bench runs in each namespace. Needs root and
iproute2; takes everything away again.
"""

import argparse
import json
import os
import pathlib
import subprocess

from peers import quiet

ROOT = pathlib.Path(__file__).resolve().parents[1]


def call(*command):
    subprocess.run(command, check=True)


def limit(namespace, end, mbit):
    # A burst of 4 ms, and room for 50 ms to wait.
    burst = max(mbit * 1000 * 4 // 8, 64 << 10)
    call("tc", "-n", namespace, "qdisc", "replace", "dev", end, "root", "tbf", "rate",
         f"{mbit}mbit", "burst", str(burst), "latency", "50ms")


class Network:
    """Hosts on two switches with a trunk between them."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.name = f"atl{os.getpid() % 100000}"
        self.middle = f"{self.name}-s"

    def host(self, i):
        return f"{self.name}-{i}"

    @staticmethod
    def address(i):
        return f"10.218.0.{i + 1}"

    def __enter__(self):
        call("ip", "netns", "add", self.middle)
        for bridge in ("s0", "s1"):
            call("ip", "-n", self.middle, "link", "add", bridge, "type", "bridge")
            call("ip", "-n", self.middle, "link", "set", bridge, "up")
        call("ip", "-n", self.middle, "link", "add", "t0", "type", "veth", "peer", "name", "t1")
        for side in range(2):
            call("ip", "-n", self.middle, "link", "set", f"t{side}", "master", f"s{side}", "up")
        for i in range(self.hosts):
            name, port = self.host(i), f"p{i}"
            call("ip", "netns", "add", name)
            call("ip", "-n", self.middle, "link", "add", port, "type", "veth", "peer", "name",
                 "eth0", "netns", name)
            bridge = "s0" if i < self.hosts // 2 else "s1"
            call("ip", "-n", self.middle, "link", "set", port, "master", bridge, "up")
            call("ip", "-n", name, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
            call("ip", "-n", name, "link", "set", "eth0", "up")
            call("ip", "-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for name in [self.host(i) for i in range(self.hosts)] + [self.middle]:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def limit_host(self, i, mbit):
        limit(self.host(i), "eth0", mbit)
        limit(self.middle, f"p{i}", mbit)

    def limit_trunk(self, mbit):
        for side in range(2):
            limit(self.middle, f"t{side}", mbit)


def measure(args, network, port):
    ranks = [subprocess.Popen(
        ["ip", "netns", "exec", network.host(i), str(args.bench), "--rank", str(i), "--ranks",
         str(args.hosts), "--rendezvous", f"tcp://{network.address(0)}:{port}", "--rounds",
         str(args.rounds), "--bytes", str(int(args.mib * 2**20))],
        stdout=subprocess.PIPE, text=True) for i in range(args.hosts)]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise SystemExit("a rank failed")
    return json.loads(outputs[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=pathlib.Path,
                        default=ROOT / "build/release/bench/ring_bench")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--mib", type=float, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    quiet.add_options(parser)
    args = parser.parse_args()
    calm = quiet.Quiet(args.others, args.patience)
    expected = 2 * args.mib * 2**20 * 8 / (args.mbit * 1e6)
    print(f"2 m / B at {args.mbit} Mbit/s: {expected:.3f} s\n")
    print("| network | direct, s | ring, s | direct / ring | ring / (2 m / B) |\n|---|---|---|---|---|")
    with Network(args.hosts) as network:
        for case, name in enumerate(("equal links", "trunk of one link's rate",
                                     "one host at a quarter of the rate")):
            for i in range(args.hosts):
                network.limit_host(i, args.mbit)
            network.limit_trunk(args.mbit if case == 1 else 20 * args.mbit)
            if case == 2:
                network.limit_host(args.hosts // 2, args.mbit // 4)
            got = calm.measure(lambda: measure(args, network, 29700 + case))
            direct, ring = got["direct"], got["ring"]
            print(f"| {name} | {direct:.3f} | {ring:.3f} | {direct / ring:.2f} | "
                  f"{ring / expected:.2f} |", flush=True)
    print(f"\n{calm}")


if __name__ == "__main__":
    main()
