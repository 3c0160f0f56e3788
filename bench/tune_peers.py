#!/usr/bin/env python3
"""atoll's searchers beside Optuna's and BoTorch on functions whose minima are known.

    python3 bench/tune_peers.py build/release/bench/tune_bench --seeds 20 --out regrets.json

All begin with the same ten quasi-random points of each seed, which `tune_bench starts` prints. Needs Optuna, for its
CmaEsSampler cmaes too; what needs PyTorch (GPSampler, BoTorch) is left out without it. Prints a row for each searcher:
median, quartiles and geometric mean of the least regret over seeds, CPU seconds a trial, and how it compares with
atoll's gp: the ratio of geometric means and Wilcoxon's signed-rank p over seeds.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time

import optuna
from scipy import stats

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
STARTS = 10


def optuna_samplers():
    version = f"Optuna {optuna.__version__}"
    found = {
        f"{version} TPESampler": lambda seed: optuna.samplers.TPESampler(n_startup_trials=STARTS, seed=seed),
        f"{version} CmaEsSampler": lambda seed: optuna.samplers.CmaEsSampler(n_startup_trials=STARTS, seed=seed),
    }
    if hasattr(optuna.samplers, "GPSampler"):
        found[f"{version} GPSampler"] = lambda seed: optuna.samplers.GPSampler(n_startup_trials=STARTS, seed=seed)
    return found


def optuna_regret(make, function, starts, trials, seed):
    study = optuna.create_study(sampler=make(seed))
    dimensions = len(starts[0])
    for start in starts:
        study.enqueue_trial({f"x{i}": x for i, x in enumerate(start)})
    study.optimize(
        lambda trial: function([trial.suggest_float(f"x{i}", 0, 1) for i in range(dimensions)]), n_trials=trials
    )
    return study.best_value


def botorch_regret(function, starts, trials, seed):
    """The loop of BoTorch's own introduction: a standardised Gaussian process and log EI."""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    points = torch.tensor(starts, dtype=torch.double)
    values = torch.tensor([[-function(start)] for start in starts], dtype=torch.double)
    bounds = torch.stack([torch.zeros(points.shape[1]), torch.ones(points.shape[1])]).double()
    while len(points) < trials:
        model = SingleTaskGP(points, values, outcome_transform=Standardize(m=1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = LogExpectedImprovement(model, best_f=values.max())
        point, _ = optimize_acqf(acquisition, bounds=bounds, q=1, num_restarts=10, raw_samples=512)
        points = torch.cat([points, point])
        values = torch.cat([values, torch.tensor([[-function(point[0].tolist())]], dtype=torch.double)])
    return -values.max().item()


def peers():
    found = {
        name: (lambda function, starts, trials, seed, make=make: optuna_regret(make, function, starts, trials, seed))
        for name, make in optuna_samplers().items()
    }
    try:
        import torch

        torch.set_num_threads(1)
        import botorch

        found[f"BoTorch {botorch.__version__} SingleTaskGP, log EI"] = botorch_regret
    except ImportError:
        found = {name: run for name, run in found.items() if "GPSampler" not in name}
    return found


def geometric_mean(regrets):
    return math.exp(sum(math.log(max(x, 1e-12)) for x in regrets) / len(regrets))


def row(name, regrets, seconds, ours):
    ordered = sorted(regrets)
    n = len(ordered)
    against = "–"
    if ours is not None:
        logs = [math.log(max(a, 1e-12) / max(b, 1e-12)) for a, b in zip(ours, regrets)]
        p = stats.wilcoxon(logs).pvalue if any(logs) else 1.0
        against = f"{geometric_mean(ours) / geometric_mean(regrets):.3g}, p = {p:.2g}"
    print(
        f"| {name} | {ordered[n // 2]:.4g} | {ordered[n // 4]:.4g} to {ordered[3 * n // 4]:.4g} "
        f"| {geometric_mean(regrets):.3g} | {1e3 * seconds:.3g} | {against} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--functions", default="branin,hartmann6")
    parser.add_argument("--peers", default="", help="only those whose names contain one of these, with commas between")
    parser.add_argument("--out", help="file to write all regrets to, as JSON")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def bench(*words):
        before = os.times()
        output = subprocess.run([arguments.program, *words], check=True, capture_output=True, text=True).stdout
        after = os.times()
        return output.splitlines(), after.children_user - before.children_user

    every = {}
    for name in arguments.functions.split(","):
        function, dimensions, trials = FUNCTIONS[name]
        print(f"\n{name}, {trials} trials, {arguments.seeds} seeds\n")
        print("| searcher | median regret | quartiles | geometric mean | CPU ms a trial | atoll `gp` / this one |")
        print("|---|---|---|---|---|---|")
        ours = None
        for searcher in ("gp", "tpe", "cma-es", "quasi-random", "random"):
            words = ["regret", "--searcher", searcher, "--function", name, "--trials", str(trials)]
            lines, took = bench(*words, "--seeds", str(arguments.seeds))
            regrets = [float(line) for line in lines]
            every[f"{name} atoll {searcher}"] = regrets
            row(f"atoll `{searcher}`", regrets, took / (trials * arguments.seeds), ours)
            ours = ours or regrets
        for peer, run in peers().items():
            if arguments.peers and not any(word in peer for word in arguments.peers.split(",")):
                continue
            regrets, before = [], time.process_time()
            for seed in range(arguments.seeds):
                lines, _ = bench("starts", "--dimensions", str(dimensions), "--seed", str(seed), "--count", str(STARTS))
                starts = [[float(x) for x in line.split()] for line in lines]
                regrets.append(run(function, starts, trials, seed))
                print(f"{peer}: {seed + 1} of {arguments.seeds} seeds", file=sys.stderr, flush=True)
            every[f"{name} {peer}"] = regrets
            row(peer, regrets, (time.process_time() - before) / (trials * arguments.seeds), ours)
            if arguments.out:
                with open(arguments.out, "w") as file:
                    json.dump(every, file)


if __name__ == "__main__":
    main()
