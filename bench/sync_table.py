"""The table of bench/compressed.py and bench/which_sync.py: loss and bytes of each way to sync
beside the plain one with the same seeds, and computed times over links."""

import statistics


def print_table(found, plain, first, beside, links, unit, time_of):
    """`found`: for each way (held-out loss, bytes a step) of every seed. `plain`: the way that the
    others stand beside. `first`, `beside`: headings. `links`: (name, bits a second, round trip in
    seconds). `time_of(way, bytes, rate, round trip)`: in `unit`."""
    base = found.get(plain)
    print(f"| {first} | held-out loss | {beside} | MB a step | times fewer | "
          + " | ".join(f"{name}: {unit}" for name, _, _ in links) + " |")
    print("|---|---|---|---|---|" + "---|" * len(links))
    for way, results in found.items():
        loss = statistics.mean(one[0] for one in results)
        sent = statistics.mean(one[1] for one in results)
        over, fewer = "", ""
        if base:
            ratios = [one[0] / other[0] - 1 for one, other in zip(results, base)]
            over = f"{100 * statistics.mean(ratios):+.2f}%"
            if len(ratios) > 1:
                over += f" ± {100 * statistics.stdev(ratios):.2f}"
            fewer = f"{statistics.mean(one[1] for one in base) / sent:.2f}"
        times = [f"{time_of(way, sent, rate, trip):.1f}" for _, rate, trip in links]
        print(f"| {way} | {loss:.4f} | {over} | {sent / 1e6:.3f} | {fewer} | "
              + " | ".join(times) + " |")
