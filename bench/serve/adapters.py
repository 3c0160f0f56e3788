#!/usr/bin/env python3
"""Tokens a second of the base model's requests beside those that are spread over adapters, in turn.

    python3 bench/serve/adapters.py --dir build/bench-serve --rounds 5

Eight streams ask for the base alone, for one adapter each, and for one adapter all; the bar is 0.8 of the base's
rate. Every round asks all three, and medians count.
"""

import asyncio
import statistics

from client import Server, ask_all, rate
from models import Work, arguments, prompts


def main():
    parser = arguments(__doc__)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=32)
    args = parser.parse_args()
    work = Work(args)
    directories = work.adapters(args.adapters, args.rank)
    names = [f"a{i}" for i in range(args.adapters)]
    options = [part for name, path in zip(names, directories) for part in ("--adapter", f"{name}={path}")]
    mixes = {"the base": ["base"] * args.adapters, "an adapter each": names, "one adapter": names[:1] * args.adapters}
    rates = {what: [] for what in mixes}
    with Server(args.atoll, work.model, "--weights", args.weights, "--slots", args.adapters, *options) as server:
        for turn in range(args.rounds + 1):
            for k, (what, models) in enumerate(mixes.items()):
                asked = [{"prompt": prompt, "tokens": args.tokens, "model": model}
                         for prompt, model in zip(prompts(len(models), args.prompt, 10 * turn + k), models)]
                streams = asyncio.run(ask_all(server.port, asked))
                if turn > 0:  # the first one warms up
                    rates[what].append(rate(streams))
    base = statistics.median(rates["the base"])
    print(f"{args.weights} weights, {args.adapters} streams, adapters of rank {args.rank}, {args.rounds} rounds")
    for what, found in rates.items():
        middle = statistics.median(found)
        print(f"  {what:<16} {middle:8.1f} tokens/s  {middle / base:.2f}  ({min(found):.1f} to {max(found):.1f})")


main()
