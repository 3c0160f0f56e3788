#!/usr/bin/env python3
"""Tables of what quality.py has found, in Markdown."""

import argparse
import math
import pathlib
import statistics

import plan
import quality


def losses(found, variant, seeds):
    """Of each seed that has been run."""
    names = {seed: variant(seed).name for seed in seeds}
    return {seed: found[name] for seed, name in names.items() if name in found}


def spread(values):
    return f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""


def signed(percent):
    return f"{percent:+.1f}%"


def row(found, variant, against, seeds):
    """Mean loss and perplexity of a variant, and how far they are above what it is compared with."""
    own = losses(found, variant, seeds)
    if not own:
        return None
    own_loss = {seed: result["loss"] for seed, result in own.items()}
    cells = [f"{statistics.mean(own_loss.values()):.3f}{spread(own_loss.values())}",
             f"{math.exp(statistics.mean(own_loss.values())):.1f}", str(len(own))]
    base = {seed: result["loss"] for seed, result in losses(found, against, seeds).items()}
    both = own_loss.keys() & base.keys()
    if against is variant or not both:
        return cells + ["", "", ""]
    differences = [own_loss[seed] - base[seed] for seed in both]
    relative = [100 * (own_loss[seed] / base[seed] - 1) for seed in both]
    mean = statistics.mean(differences)
    return cells + [f"{mean:+.3f}", signed(statistics.mean(relative)),
                    signed(100 * (math.exp(mean) - 1))]


def show(found, table):
    print(f"\n## {table.title}\n")
    print("| | loss | perplexity | seeds | loss, difference | of the loss | of the perplexity | "
          "published |")
    print("|---|---|---|---|---|---|---|---|")
    for line in table.rows:
        cells = row(found, line.variant, table.rows[0].variant, table.seeds)
        if cells:
            print(f"| {line.label} | {' | '.join(cells)} | {line.published} |")


def show_all(found):
    """Every run, to see what was tried."""
    print("\n## Every run\n")
    print("| run | loss | outer steps | in time | seconds |")
    print("|---|---|---|---|---|")
    for name, result in found.items():
        in_time = f"{100 * result['contributed']:.0f}%" if "contributed" in result else ""
        print(f"| {name} | {result['loss']:.4f} | {result.get('outer_steps', '')} | {in_time} | "
              f"{result['seconds']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, default=quality.ROOT / "runs/diloco")
    args = parser.parse_args()
    found = {result["name"]: result for result in quality.results(args.work)}
    for table in plan.TABLES:
        show(found, table)
    show_all(found)


if __name__ == "__main__":
    main()
