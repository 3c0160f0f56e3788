#!/usr/bin/env python3
"""A thousand requests at once on eight slots, and idle connections beside requests that are served.

    python3 bench/serve/overload.py --dir build/bench-serve --requests 1000 --idle 1000

Accepted requests must all end whole; the others must get 429 with Retry-After at once. Then the 99th percentile of
the gaps between tokens, with and without idle connections and clients that send their request a byte at a time.
"""

import asyncio
import collections
import statistics
import time

from client import Server, ask, ask_all, request_bytes
from models import Work, arguments, prompts


async def flood(server, count):
    asked = [{"prompt": prompt, "tokens": 8} for prompt in prompts(count, 16, 1)]
    streams = await ask_all(server.port, asked)
    by_status = collections.Counter(stream.status for stream in streams)
    whole = sum(stream.complete for stream in streams if stream.status == 200)
    waits = [stream.ended - stream.sent for stream in streams if stream.status == 429]
    retry = sum("retry-after" in stream.headers for stream in streams if stream.status == 429)
    print(f"  {count} at once: {dict(by_status)}; {whole} whole answers; {retry} told when to try again"
          + (f", after {1e3 * statistics.median(waits):.0f} ms in the middle, {1e3 * max(waits):.0f} at most"
             if waits else ""))


async def slow_client(port, stop):
    """Sends the head of a request a byte a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for byte in request_bytes("/v1/completions", {"prompt": "a"}, port):
            if stop.is_set():
                return
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(1)
    except ConnectionError:
        pass  # the server has had enough
    finally:
        writer.close()


async def p99(server, rounds):
    gaps = []
    for turn in range(rounds):
        for stream in await ask_all(server.port, [{"prompt": p, "tokens": 48} for p in prompts(4, 16, turn)]):
            gaps += stream.gaps_s()
    return statistics.quantiles(gaps, n=100)[98]


async def main():
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=500)
    args = parser.parse_args()
    work = Work(args)
    with Server(args.atoll, work.model, "--weights", args.weights, "--max-queue", "128") as server:
        await ask(server.port, prompts(1, 16, 0)[0], 4)
        at_start = server.memory_kib()
        began = time.perf_counter()
        await flood(server, args.requests)
        print(f"  in {time.perf_counter() - began:.1f} s; memory {server.memory_kib() / at_start:.3f} of that after the "
              "first request")
        quiet = await p99(server, args.rounds)
        stop = asyncio.Event()
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(args.idle)]
        slow = [asyncio.create_task(slow_client(server.port, stop)) for _ in range(args.slow)]
        busy = await p99(server, args.rounds)
        stop.set()
        for _, writer in idle:
            writer.close()
        await asyncio.gather(*slow)
        print(f"  99% of the gaps: {1e3 * quiet:.1f} ms; beside {args.idle} idle and {args.slow} slow connections "
              f"{1e3 * busy:.1f} ms, {busy / quiet:.2f} times")


asyncio.run(main())
