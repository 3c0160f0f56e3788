#!/usr/bin/env python3
"""The time to the first token behind 1,024 tokens that another prompt has had, against that of the first time.

    python3 bench/serve/prefix.py --dir build/bench-serve --rounds 5

Each round sends a prompt that nobody has sent, then one with the same beginning and another end. The bar is 0.1.
"""

import asyncio
import statistics

from client import Server, ask
from models import Work, arguments, prompts


def main():
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=int, default=960, help="tokens; GPT-2 has 1,024 positions in all")
    parser.add_argument("--more", type=int, default=16, help="tokens behind them")
    args = parser.parse_args()
    work = Work(args)
    firsts, seconds, cached = [], [], []
    with Server(args.atoll, work.model, "--weights", args.weights) as server:
        for turn in range(args.rounds):
            head, = prompts(1, args.shared, turn)
            ends = prompts(2, args.more, 1000 + turn)
            first = asyncio.run(ask(server.port, head + ends[0], 4))
            second = asyncio.run(ask(server.port, head + ends[1], 4))
            firsts.append(first.first_s())
            seconds.append(second.first_s())
            cached.append(second.usage["prompt_tokens_details"]["cached_tokens"])
    first, second = statistics.median(firsts), statistics.median(seconds)
    print(f"{args.weights} weights, {args.shared} shared tokens of {args.shared + args.more}, {args.rounds} rounds\n"
          f"  first  {1e3 * first:8.1f} ms\n  second {1e3 * second:8.1f} ms  {second / first:.3f} of it, "
          f"{min(cached)} tokens of the cache")


main()
