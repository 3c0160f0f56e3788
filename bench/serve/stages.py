#!/usr/bin/env python3
"""One model on two or four stages: tokens a second over slow links beside the sum of their parts, and kill -9.

    python3 bench/serve/stages.py --dir build/bench-serve --stages 2 --delays 0,20,50,100 --kills 20

Each stage is an `atoll stage` of one thread on this machine, behind a relay that holds back every byte for half of
the delay. `sum`: the time of a token on stages without delay, and half a round trip for each of S + 1 hops.
Then stages are killed while a stream runs; the text
must be the one of an undisturbed server, and `gap` is the longest wait for a token.
"""

import asyncio
import random
import socket
import statistics
import subprocess
import time

from client import Server, ask, ask_all, rate
from models import Work, arguments, prompts


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Relay:
    """Passes connections on to a port, each byte `delay_s` later."""

    def __init__(self, target):
        self.target, self.delay_s, self.port = target, 0.0, None

    async def start(self):
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _accept(self, reader, writer):
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except ConnectionError:
            return writer.close()
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))

    async def _pass(self, reader, writer):
        waiting = asyncio.Queue()

        async def write():
            while (item := await waiting.get()) is not None:
                await asyncio.sleep(max(0.0, item[0] - time.perf_counter()))
                writer.write(item[1])
                await writer.drain()

        task = asyncio.create_task(write())
        try:
            while data := await reader.read(1 << 16):
                waiting.put_nowait((time.perf_counter() + self.delay_s, data))
            waiting.put_nowait(None)
            await task
        except ConnectionError:
            task.cancel()
        finally:
            writer.close()


class Stage:
    def __init__(self, args, model):
        self.args, self.model, self.port = args, model, free_port()
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [str(self.args.atoll), "stage", str(self.model), "--listen", f"127.0.0.1:{self.port}", "--threads", "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()


async def token_s(server, args, seed):
    stream = await ask(server.port, prompts(1, 16, seed)[0], args.tokens)
    return statistics.median(stream.gaps_s())


async def measure_delays(server, args, relays):
    quiet = None
    for delay_ms in args.delays:
        for relay in relays:
            relay.delay_s = delay_ms / 2e3
        await asyncio.sleep(3)  # round trips of heartbeats, of which the number of groups is computed
        one = statistics.median([await token_s(server, args, turn) for turn in range(args.rounds)])
        quiet = one if quiet is None else quiet
        # To the first stage, from each to the next, and back from the last one to the server.
        expected = quiet + (args.stages + 1) * delay_ms / 2e3
        many = await ask_all(server.port, [{"prompt": p, "tokens": args.tokens} for p in prompts(args.streams, 16, 50)])
        print(f"  round trip {delay_ms:4} ms: a token {1e3 * one:7.1f} ms, sum {1e3 * expected:7.1f} "
              f"({one / expected:.2f} times); {args.streams} streams {rate(many):.1f} tokens/s")
    for relay in relays:
        relay.delay_s = 0


async def measure_kills(server, args, stages):
    draw = random.Random(8)
    prompt = prompts(1, 32, 3)[0]
    alone = await ask(server.port, prompt, args.tokens)
    gaps, same = [], 0
    for _ in range(args.kills):
        task = asyncio.create_task(ask(server.port, prompt, args.tokens))
        await asyncio.sleep(draw.uniform(0, alone.ended - alone.sent))
        victim = draw.choice(stages)
        await asyncio.to_thread(victim.kill)
        victim.start()
        stream = await task
        same += stream.complete and stream.text == alone.text
        gaps.append(max(stream.gaps_s()))
    print(f"  {args.kills} times kill -9 of a stage: {same} streams with the same text; longest gap "
          f"{statistics.median(gaps):.1f} s in the middle, {max(gaps):.1f} at most")


async def main():
    parser = arguments(__doc__)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--delays", type=lambda text: [int(part) for part in text.split(",")], default=[0, 20, 50, 100])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    work = Work(args)
    stages = [Stage(args, work.model) for _ in range(args.stages)]
    relays = [Relay(stage.port) for stage in stages]
    for relay in relays:
        await relay.start()
    try:
        addresses = ",".join(f"127.0.0.1:{relay.port}" for relay in relays)
        server = await asyncio.to_thread(Server, args.atoll, work.model, "--weights", args.weights, "--stages", addresses)
        with server:
            print(f"{args.stages} stages, {args.weights} weights, {args.rounds} rounds of {args.tokens} tokens")
            await measure_delays(server, args, relays)
            if args.kills:
                await measure_kills(server, args, stages)
    finally:
        for stage in stages:
            stage.kill()


asyncio.run(main())
