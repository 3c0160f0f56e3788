#!/usr/bin/env python3
"""From the start of `atoll serve` to its first answer, beside `atoll generate`; and how it ends.

    python3 bench/serve/ends.py --dir build/bench-serve --rounds 5

`start`: until /health says 200, polled from the beginning, against the whole of `atoll generate` for one token.
The bar is 1.1. Then SIGTERM while streams run: they must end whole, and the exit code must be 0.
"""

import asyncio
import http.client
import re
import statistics
import subprocess
import threading
import time

from client import Server, ask_all
from models import Work, arguments, prompts


def first_health(server):
    """Seconds until /health says 200, and what it said before; the port is known once it listens."""
    said, began = [], server.began
    lines = []
    threading.Thread(target=lambda: lines.append(server.process.stdout.readline()), daemon=True).start()
    while not lines:
        time.sleep(0.001)
    server.port = int(re.search(r":(\d+)", lines[0]).group(1))
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/health")
        said.append(connection.getresponse().status)
        connection.close()
        if said[-1] == 200:
            return time.perf_counter() - began


def generate(args, model):
    began = time.perf_counter()
    subprocess.run([str(args.atoll), "generate", str(model), "--prompt", "a", "--max-tokens", "1", "--weights",
                    args.weights], check=True, capture_output=True)
    return time.perf_counter() - began


async def end_with_streams(server):
    task = asyncio.create_task(
        ask_all(server.port, [{"prompt": p, "tokens": 48} for p in prompts(4, 16, 1)]))
    while server.metrics()["atoll_generated_tokens_total"] < 4:
        await asyncio.sleep(0.02)
    server.process.terminate()
    streams = await task
    return sum(stream.complete for stream in streams), await asyncio.to_thread(server.process.wait, 120)


def main():
    args = arguments(__doc__).parse_args()
    work = Work(args)
    served, generated, whole, codes = [], [], 0, set()
    for turn in range(args.rounds + 1):
        took = generate(args, work.model)
        with Server(args.atoll, work.model, "--weights", args.weights, wait=False) as server:
            ready = first_health(server)
            complete, code = asyncio.run(end_with_streams(server))
        whole += complete
        codes.add(code)
        if turn > 0:  # the first one reads the files from the disk
            served.append(ready)
            generated.append(took)
    print(f"  start: {statistics.median(served):.2f} s, `atoll generate` of one token "
          f"{statistics.median(generated):.2f} s: {statistics.median(served) / statistics.median(generated):.2f} times\n"
          f"  SIGTERM beside 4 streams, {args.rounds + 1} times: {whole} of {4 * (args.rounds + 1)} ended whole, "
          f"exit codes {sorted(codes)}")


main()
