#!/usr/bin/env python3
"""How long a server works on for clients that have gone, and whether many that go leave anything behind.

    python3 bench/serve/cancel.py --dir build/bench-serve --hang-ups 10000

First one client goes in the middle of its prompt and one in its stream: the time until `/metrics` counts the
request as cancelled, in steps of the model. Then clients hang up at random: in the queue, in the prompt, in the
stream. Afterwards no block of the cache may be in use, and a request must get what it got before.
"""

import asyncio
import random
import statistics
import time

from client import Server, ask
from models import Work, arguments, prompts


async def ended(server, cancelled):
    """Seconds until so many requests are counted as cancelled and none runs."""
    began = time.perf_counter()
    while True:
        values = await asyncio.to_thread(server.metrics)
        if values["atoll_requests_cancelled_total"] >= cancelled and values["atoll_requests_running"] == 0:
            return time.perf_counter() - began
        if time.perf_counter() - began > 600:
            raise SystemExit("a request of a client that has gone still runs after ten minutes")
        await asyncio.sleep(0.002)


async def one(server, args, leave_after):
    times = []
    for turn in range(args.rounds):
        before = server.metrics()["atoll_requests_cancelled_total"]
        prompt, = prompts(1, 800 if leave_after == 0 else 16, turn)
        going = asyncio.create_task(ask(server.port, prompt, 200, leave_after=leave_after or None))
        if leave_after == 0:  # it goes as soon as its prompt is being read
            while (await asyncio.to_thread(server.metrics))["atoll_requests_running"] == 0:
                await asyncio.sleep(0.002)
            going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        times.append(await ended(server, before + 1))
    return statistics.median(times)


async def storm(server, args):
    draw = random.Random(5)
    room = asyncio.Semaphore(64)

    async def go(prompt):
        async with room:
            stay = draw.choice([0, 0, 1, 2, 5])
            stream = await ask(server.port, prompt, draw.randrange(1, 12), leave_after=stay)
            return stream.status

    heads = prompts(20, 40, 77)  # some begin alike
    return await asyncio.gather(*(go(draw.choice(heads)[:draw.randrange(1, 40)]) for _ in range(args.hang_ups)))


async def main():
    parser = arguments(__doc__)
    parser.add_argument("--hang-ups", type=int, default=10_000)
    args = parser.parse_args()
    work = Work(args)
    with Server(args.atoll, work.model, "--weights", args.weights, "--max-queue", "64") as server:
        probe = prompts(1, 100, 999)[0]
        before = await ask(server.port, probe, 16, logprobs=1)
        quiet = statistics.median(before.gaps_s())
        for what, leave_after in (("in its prompt", 0), ("in its stream", 3)):
            took = await one(server, args, leave_after)
            print(f"  a client that goes {what}: {1e3 * took:.1f} ms; a step for one token takes {1e3 * quiet:.1f} ms")
        began = time.perf_counter()
        await storm(server, args)
        values = server.metrics()
        while values["atoll_requests_running"] + values["atoll_requests_waiting"] > 0:
            await asyncio.sleep(0.05)
            values = server.metrics()
        after = await ask(server.port, probe, 16, logprobs=1)
        print(f"  {args.hang_ups} hang-ups in {time.perf_counter() - began:.0f} s: "
              f"{values['atoll_requests_cancelled_total']:.0f} cancelled, {values['atoll_requests_finished_total']:.0f} "
              f"finished before, {values['atoll_requests_rejected_total']:.0f} refused at a full queue; the answer "
              f"afterwards is {'the same' if after.text == before.text else 'ANOTHER'}")


asyncio.run(main())
