#!/usr/bin/env python3
"""How much of the memory for keys and values holds nothing, and what a cache that is too small costs.

    python3 bench/serve/blocks.py --dir build/bench-serve

Eight answers of mixed lengths run at once. `waste`: positions of blocks in use that no token has, sampled from
/metrics while all run. Then the same requests with a cache for a quarter of their tokens, or for the longest one: every answer must be
the same, and the server must still run.
"""

import asyncio
import random
import re
import statistics
import time
import urllib.request

from client import Server, ask_all
from models import Work, arguments, prompts

BLOCK = 16


def requests(args):
    draw = random.Random(4)
    lengths = [draw.randrange(40, 400) for _ in range(args.streams)]
    return [{"prompt": prompts(1, length, length)[0], "tokens": args.tokens} for length in lengths]


def in_use(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        return int(re.search(r'^atoll_cache_blocks_used{by="running"} (\d+)', answer.read().decode(), re.M).group(1))


async def run(server, asked):
    """The streams, and the share of positions in use that hold nothing: samples while all streams write."""
    task = asyncio.create_task(ask_all(server.port, asked))
    samples = []
    while not task.done():
        samples.append((time.perf_counter(), await asyncio.to_thread(in_use, server), time.perf_counter()))
        await asyncio.sleep(0.02)
    streams = await task
    first = max(stream.times[0] for stream in streams)
    last = min(stream.times[-1] for stream in streams)
    shares = []
    for before, blocks, after in samples:
        if first < before and after < last:
            made = sum(sum(at <= after for at in stream.times) for stream in streams)
            shares.append(1 - (sum(len(one["prompt"]) for one in asked) + made) / (blocks * BLOCK))
    return streams, shares


async def main():
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    work = Work(args)
    asked = requests(args)
    prompt_tokens = sum(len(one["prompt"]) for one in asked)
    with Server(args.atoll, work.model, "--weights", args.weights) as server:
        roomy, shares = await run(server, asked)
    print(f"  {args.streams} sequences of {min(len(o['prompt']) for o in asked)} to "
          f"{max(len(o['prompt']) for o in asked)} tokens: {100 * statistics.median(shares):.1f}% of the positions in "
          f"use hold nothing, {100 * max(shares):.1f}% at most")
    longest = max(len(one["prompt"]) for one in asked) + args.tokens + BLOCK  # one request must fit
    positions = max((prompt_tokens + args.streams * args.tokens) // 4, longest)
    mib = -(-positions * 2 * 12 * 768 * 4 // (1 << 20))  # of GPT-2 124M
    with Server(args.atoll, work.model, "--weights", args.weights, "--cache", mib) as server:
        small, _ = await run(server, asked)
        values = server.metrics()
    same = sum(a.text == b.text for a, b in zip(roomy, small))
    print(f"  with {mib} MiB, room for {positions} tokens: {values['atoll_requests_preempted_total']:.0f} times a "
          f"request lost its memory; {same} of {len(asked)} answers are the same")


asyncio.run(main())
