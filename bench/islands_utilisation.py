#!/usr/bin/env python3
"""Share of the time that two islands train, over links of several rates, beside the published one.

    sudo bench/islands_utilisation.py [--algorithms diloco streaming ...]

Each island has a core and a network namespace for itself; tc's token bucket filter (tbf) limits the
link between them. Rates are the published ones (Streaming DiLoCo, arXiv 2501.18512), scaled so that
the wire takes as much of an outer step's compute as there: our parameters, our seconds. Needs root,
iproute2 and two cores; takes everything away again.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from exposed import HOSTS, Link, call

ROOT = pathlib.Path(__file__).resolve().parents[1]
# A narrow model on many tokens: 0.1 to 0.4 s a step of 2,048 of them on one core.
MODEL = ["--model.hidden_size=128", "--model.num_hidden_layers=6", "--model.num_attention_heads=4",
         "--model.num_key_value_heads=4", "--data.vocab_size=2048", "--train.context=256",
         "--device.threads=1",
         "--log.tensorboard=false", "--log.every=1", "--data.held_out=0",
         "--checkpoint.every=1000000"]
# The published exchange: what it must be for its table to hold, Gbit for 10 s of compute. In 16
# bits a parameter: the row of DiLoCo has 50% at 1.4 Gbit/s (so it is below 14.1) and not 80% at
# 5.15, the next lower rate of its grid (so it is above 13.4).
PUBLISHED_GBIT = {16: 13.7, 4: 13.7 / 4}
PUBLISHED_SECONDS = 10.0
PERCENT = (50, 80, 90, 95, 99)
# Gbit/s for those percentages, bits a parameter, and how we run it.
ALGORITHMS = {
    "diloco": ((1.4, 6.2, 13.3, 23.3, 86.8), 16, ["--outer.codec=bf16"]),
    "diloco, overlap 1": ((1.4, 6.2, 13.3, 23.3, 86.8), 16,
                          ["--outer.codec=bf16", "--outer.algorithm=streaming",
                           "--outer.overlap=1"]),
    "streaming": ((1.4, 5.2, 9.1, 16, 28.1), 16, ["--outer.codec=bf16", "streaming"]),
    "streaming, overlap 1": ((1.4, 5.2, 9.1, 16, 28.1), 16,
                             ["--outer.codec=bf16", "streaming", "--outer.overlap=1"]),
    "streaming, overlap 5": ((1.4, 4.3, 6.2, 9.1, 11), 16,
                             ["--outer.codec=bf16", "streaming", "--outer.overlap=5"]),
    "streaming, overlap 5, 4 bits": ((.4, .9, 1.7, 2.0, 3.0), 4,
                                     ["--outer.codec=e3m0", "streaming", "--outer.overlap=5"]),
    # Not of that table: from where a round hides the exchange.
    "eager, 4 bits": ((.4, .5, .6, .9, 1.7), 4,
                      ["--outer.codec=e3m0", "--outer.algorithm=eager"]),
}


def limit(link, mbit):
    """Both directions; None takes the limit away."""
    for name, end in zip(link.names, link.ends):
        subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", end, "root"], check=False,
                       stderr=subprocess.DEVNULL)
        if mbit is not None:
            burst = max(int(mbit * 1000 * 4 / 8), 16 << 10)  # of 4 ms
            room = max(int(mbit * 1000 * 50 / 8), 256 << 10)  # of 50 ms
            call("tc", "-n", name, "qdisc", "add", "dev", end, "root", "tbf", "rate",
                 f"{int(mbit * 1000)}kbit", "burst", str(burst), "limit", str(room))


SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], 7430)) as server:
    print("here", flush=True)
    client, _ = server.accept()
    client.sendall(bytes(int(sys.argv[2])))
    client.shutdown(socket.SHUT_WR)
    client.recv(1)
"""
FETCH = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7430)) as server:
    begin = time.time()
    while server.recv(1 << 16):
        pass
    print(time.time() - begin)
"""


def plain_seconds(link, num_bytes):
    """What a plain socket takes for so many bytes while another one goes the other way."""
    def python(side, *words):
        return subprocess.Popen(["ip", "netns", "exec", link.names[side], "taskset", "-c",
                                 str(side), sys.executable, "-c", *map(str, words)],
                                stdout=subprocess.PIPE, text=True)
    servers = [python(side, SERVE, host, num_bytes) for side, host in enumerate(HOSTS)]
    for server in servers:
        server.stdout.readline()
    clients = [python(1 - side, FETCH, host) for side, host in enumerate(HOSTS)]
    seconds = [float(client.communicate()[0]) for client in clients]
    for server in servers:
        server.communicate()
    return statistics.mean(seconds)


class Run:
    """One run of two islands, from start to end."""

    def __init__(self, args, link, settings):
        self.args, self.link = args, link
        shutil.rmtree(args.work, ignore_errors=True)
        args.work.mkdir(parents=True)
        self.settings = [f"--outer.fragments={args.fragments}" if word == "streaming" else word
                         for word in settings]
        if "streaming" in settings:
            self.settings.append("--outer.algorithm=streaming")

    def _start(self, side, words):
        with open(self.args.work / f"{words[0]}-{side}.log", "w", encoding="utf-8") as log:
            return subprocess.Popen(["ip", "netns", "exec", self.link.names[side], "taskset",
                                     "-c", str(side), str(self.args.atoll), *map(str, words)],
                                    stdout=subprocess.DEVNULL, stderr=log)

    def go(self):
        args, authority = self.args, self.args.work / "authority"
        for words in (["init", authority], ["issue", authority, "order", "--host", HOSTS[0]],
                      ["issue", authority, "a", "--host", HOSTS[0]],
                      ["issue", authority, "b", "--host", HOSTS[1]]):
            subprocess.run([args.atoll, "certs", *map(str, words)], check=True,
                           capture_output=True)
        identities = authority / "identities"
        processes = [self._start(0, ["coordinator", "--dir", args.work / "order", "--listen",
                                     f"{HOSTS[0]}:7411", "--identity", identities / "order"])]
        time.sleep(0.5)
        for side, name in enumerate("ab"):
            processes.append(self._start(side, [
                "train", f"--data.text={args.text}", f"--run.dir={args.work / name}",
                f"--train.steps={args.inner_steps * args.rounds}", *MODEL,
                f"--train.batch_size={args.batch}", f"--train.micro_batch={args.batch}",
                f"--island.coordinator={HOSTS[0]}:7411", f"--island.name={name}",
                f"--island.listen={HOSTS[side]}:7420", f"--island.identity={identities / name}",
                "--outer.islands=2", f"--outer.inner_steps={args.inner_steps}",
                "--outer.grace_s=100", *self.settings]))
        # Islands first: without them the coordinator waits for ever.
        for process in processes[1:] + processes[:1]:
            if process.wait() != 0:
                for other in processes:
                    other.kill()
                raise SystemExit(f"a process failed: see {args.work}/*.log")
        return self._figures()

    def _outer_steps(self, name):
        """All but those of the first round, and the time between the first and the last."""
        with open(self.args.work / name / "metrics.jsonl", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        a_round = self.args.fragments if "--outer.algorithm=streaming" in self.settings and \
            f"--outer.fragments={self.args.fragments}" in self.settings else 1
        outer = [record for record in records if "outer_step" in record]
        outer = outer[a_round - 1:a_round * self.args.rounds]
        if "--outer.algorithm=eager" in self.settings:
            outer = outer[:-1]  # nothing is left to train on while the last one is exchanged
        step = statistics.median(r["step_ms"] for r in records if "step_ms" in r) / 1e3
        compute = step * (outer[-1]["step"] - outer[0]["step"])
        return outer[1:], compute / (outer[-1]["time"] - outer[0]["time"]), step

    def _figures(self):
        (a, clock_a, step_a), (b, clock_b, step_b) = map(self._outer_steps, "ab")
        waited, trained = {}, {}
        for name, outer in (("a", a), ("b", b)):
            waited[name] = [r["outer_exposed_s"] for r in outer]
            trained[name] = sum(r["outer_exposed_s"] * r["outer_utilisation"] /
                                max(1e-9, 1 - r["outer_utilisation"]) for r in outer)
        printed = statistics.mean(trained[n] / (trained[n] + sum(waited[n])) for n in "ab")
        # Who came last in an outer step waited for the exchange alone.
        last = sum(map(min, waited["a"], waited["b"]))
        both = sum(trained.values()) + sum(map(sum, waited.values()))
        return {"printed": printed, "by_clock": (clock_a + clock_b) / 2,
                "last": 1 - 2 * last / both,
                "waited_ms": 1e3 * last / len(a), "step_ms": 1e3 * (step_a + step_b) / 2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--atoll", type=pathlib.Path, default=ROOT / "build/release/bin/atoll")
    parser.add_argument("--text", default=ROOT / "runs/kjv-demo-data/kjv.txt")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "runs/islands-utilisation")
    parser.add_argument("--inner-steps", type=int, default=96)
    parser.add_argument("--fragments", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parameters", type=int, default=1_467_904)
    parser.add_argument("--batch", type=int, default=8, help="of 256 tokens; fewer where a step "
                        "takes longer, or links become too slow to be real")
    parser.add_argument("--step-s", type=float,
                        help="a step's compute, from which the link's rate follows; else measured")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS))
    parser.add_argument("--percent", nargs="+", type=int, default=PERCENT)
    parser.add_argument("--unlimited", action="store_true", help="also without a limit")
    args = parser.parse_args()
    print("| algorithm | published: Gbit/s, % | link here, Mbit/s | training, % | as printed | by "
          "the clock | with plain sockets, % | waited an outer step, ms | a step, ms |\n"
          "|---|---|---|---|---|---|---|---|---|", flush=True)
    with Link() as link:
        for name, end in zip(link.names, link.ends):
            call("ip", "-n", name, "link", "set", end, "mtu", "9000")
        if args.step_s is None:
            short = argparse.Namespace(**{**vars(args), "inner_steps": 24, "rounds": 2})
            args.step_s = Run(short, link, ALGORITHMS["diloco"][2]).go()["step_ms"] / 1e3
        for algorithm in args.algorithms:
            rates, bits, settings = ALGORITHMS[algorithm]
            points = [(rate, percent) for rate, percent in zip(rates, PERCENT)
                      if percent in args.percent]
            if args.unlimited:
                points.append((None, None))
            for rate, percent in points:
                measure(args, link, algorithm, rate, percent, bits, settings)


def measure(args, link, algorithm, rate, percent, bits, settings):
    """One row."""
    compute = args.inner_steps * args.step_s
    gbit = args.parameters * bits / 1e9
    mbit, wanted = None, 0.0
    if rate is not None:
        wanted = PUBLISHED_GBIT[bits] / rate / PUBLISHED_SECONDS * compute  # seconds
        mbit = 1e3 * gbit / wanted
        # Both directions at once cost TCP a part of the rate: its answers wait behind data.
        for _ in range(1 if wanted > 4 else 2):
            limit(link, mbit)
            mbit *= max(1.0, plain_seconds(link, int(gbit * 1e9 / 8)) / wanted)
    limit(link, mbit)
    got = Run(args, link, settings).go()
    compute = args.inner_steps * got["step_ms"] / 1e3  # as it was in this run
    print(f"| {algorithm} | {f'{rate}, {percent}' if rate else 'no limit'} | "
          f"{f'{mbit:.1f}' if mbit else ''} | {100 * got['last']:.1f} | "
          f"{100 * got['printed']:.1f} | {100 * got['by_clock']:.1f} | "
          f"{100 * compute / (compute + wanted):.1f} | {got['waited_ms']:.0f} | "
          f"{got['step_ms']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
