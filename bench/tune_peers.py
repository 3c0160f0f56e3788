#!/usr/bin/env python3
"""atoll's searchers beside Optuna's on functions whose minima are known.

    python3 bench/tune_peers.py build/release/bench/tune_bench --seeds 20

Needs Optuna, with its cmaes; its GPSampler also PyTorch and SciPy, and is left out without them. Prints a row for each
searcher: median, quartiles and geometric mean of the least regret over seeds, and seconds a suggestion.
"""

import argparse
import math
import subprocess
import time

import optuna

ALPHA = [1, 1.2, 3, 3.2]
A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
P = [
    [1312, 1696, 5569, 124, 8283, 5886],
    [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650],
    [4047, 8828, 8732, 5743, 1091, 381],
]


def branin(u):
    x, y = -5 + 15 * u[0], 15 * u[1]
    a = y - 5.1 * x * x / (4 * math.pi**2) + 5 * x / math.pi - 6
    return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816


def hartmann6(u):
    total = 0
    for alpha, a, p in zip(ALPHA, A, P):
        total -= alpha * math.exp(-sum(ai * (x - 1e-4 * pi) ** 2 for ai, x, pi in zip(a, u, p)))
    return total + 3.322368011415515


FUNCTIONS = {"branin": (branin, 2, 30), "hartmann6": (hartmann6, 6, 100)}


def samplers():
    found = {
        "TPESampler": lambda seed: optuna.samplers.TPESampler(seed=seed),
        "CmaEsSampler": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
        "RandomSampler": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    }
    try:
        import torch  # noqa: F401

        found["GPSampler"] = lambda seed: optuna.samplers.GPSampler(seed=seed)
    except ImportError:
        pass
    return found


def optuna_regret(make, function, dimensions, trials, seed):
    study = optuna.create_study(sampler=make(seed))
    study.optimize(
        lambda trial: function([trial.suggest_float(f"x{i}", 0, 1) for i in range(dimensions)]), n_trials=trials
    )
    return study.best_value


def row(name, regrets, seconds):
    ordered = sorted(regrets)
    n = len(ordered)
    mean = math.exp(sum(math.log(max(x, 1e-12)) for x in ordered) / n)
    print(
        f"| {name} | {ordered[n // 2]:.4g} | {ordered[n // 4]:.4g} to {ordered[3 * n // 4]:.4g} | {mean:.3g} "
        f"| {1e3 * seconds:.3g} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name, (function, dimensions, trials) in FUNCTIONS.items():
        print(f"\n{name}, {trials} trials, {arguments.seeds} seeds\n")
        print("| searcher | median regret | quartiles | geometric mean | ms a trial |\n|---|---|---|---|---|")
        for searcher in ("gp", "tpe", "cma-es", "quasi-random", "random"):
            start = time.monotonic()
            output = subprocess.run(
                [arguments.program, "regret", "--searcher", searcher, "--function", name, "--trials", str(trials)]
                + ["--seeds", str(arguments.seeds)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            took = (time.monotonic() - start) / (trials * arguments.seeds)
            row(f"atoll `{searcher}`", [float(line) for line in output.split()], took)
        for sampler, make in samplers().items():
            start = time.monotonic()
            regrets = [optuna_regret(make, function, dimensions, trials, seed) for seed in range(arguments.seeds)]
            row(f"Optuna `{sampler}`", regrets, (time.monotonic() - start) / (trials * arguments.seeds))


if __name__ == "__main__":
    main()
