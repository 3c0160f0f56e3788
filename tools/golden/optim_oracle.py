#!/usr/bin/env python3
"""Writes src/atoll/optim/optim_oracle.inc: what other implementations of the optimizers come to.

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install torch==2.15.0 numpy
    .venv-golden/bin/python tools/golden/optim_oracle.py > src/atoll/optim/optim_oracle.inc
    .venv-golden/bin/python tools/golden/optim_oracle.py --compare-muon

AdamW and SGD are torch.optim's, in f64, but for SGD's weight decay: torch adds it to the gradient,
and here it is decoupled (SGDW, algorithm 1 of Loshchilov & Hutter 2019). Lion (torch has none) is
stated here from algorithm 2 of Chen et al. 2023. Muon is stated here in f64, because torch.optim.Muon orthogonalises in bf16;
--compare-muon shows how far the two are from each other, per element of the orthogonal matrix and
against the 2^-8 that bf16 resolves.
"""

import sys

import numpy as np
import torch

STEPS = 12
SHAPES = [(6, 10), (9, 4), (5, 5), (7,)]  # wide, tall, square; and a vector, which has no decay
PADDED = 16  # elements between parameters are a multiple of this
LR = 0.02
GRAD_SCALE = 0.75


def numbers(count, seed):
    """`count` multiples of 1/256 in [-1, 1), which f32 and bf16 hold exactly or nearly so."""
    state = np.random.default_rng(seed)
    return state.integers(-256, 256, count) / 256


def start():
    """The parameters before the first step."""
    return [numbers(int(np.prod(s)), 1 + i).reshape(s) for i, s in enumerate(SHAPES)]


def gradients(step):
    """The gradients of a step, from 1, before grad_scale."""
    return [numbers(int(np.prod(s)), 1000 * step + i).reshape(s) for i, s in enumerate(SHAPES)]


def run_torch(make):
    """All parameters after STEPS updates of the optimizer that make(groups) gives."""
    params = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in start()]
    optimizer = make(params[:-1], params[-1:])
    for step in range(1, STEPS + 1):
        for param, grad in zip(params, gradients(step)):
            param.grad = torch.tensor(grad * GRAD_SCALE, dtype=torch.float64)
        optimizer.step()
    return [p.detach().numpy() for p in params]


def run_numpy(rule):
    """The same for a rule(param, grad, state, decays, step) -> param."""
    params = start()
    states = [{} for _ in params]
    for step in range(1, STEPS + 1):
        for i, grad in enumerate(gradients(step)):
            decays = i < len(params) - 1
            params[i] = rule(params[i], grad * GRAD_SCALE, states[i], decays, step)
    return params


def adamw_rule(lr, beta1, beta2, eps, weight_decay):
    """AdamW in f64, for what Muon leaves to it."""

    def rule(p, g, state, decays, step):
        m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
        direction = m / (1 - beta1**step) / (np.sqrt(v / (1 - beta2**step)) + eps)
        return p - lr * (direction + (weight_decay if decays else 0) * p)

    return rule


def lion_rule(lr, beta1, beta2, weight_decay):
    """Lion, algorithm 2 of Chen et al. 2023."""

    def rule(p, g, state, decays, step):
        m = state.get("m", np.zeros_like(g))
        update = np.sign(beta1 * m + (1 - beta1) * g)
        state["m"] = beta2 * m + (1 - beta2) * g
        return p - lr * (update + (weight_decay if decays else 0) * p)

    return rule


def orthogonalized(x):
    """Five Newton-Schulz steps on x over its Frobenius norm."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def muon_rule(lr, momentum, nesterov, weight_decay, match_rms, vectors):
    """Muon for matrices; `vectors` is the rule for the rest."""

    def rule(p, g, state, decays, step):
        if p.ndim != 2:
            return vectors(p, g, state, decays, step)
        m = state["m"] = momentum * state.get("m", 0) + (1 - momentum) * g
        direction = orthogonalized(momentum * m + (1 - momentum) * g if nesterov else m)
        rows, cols = p.shape
        scale = 0.2 * max(rows, cols) ** 0.5 if match_rms else max(1, rows / cols) ** 0.5
        return p * (1 - lr * weight_decay) - lr * scale * direction

    return rule


def cases():
    """(C++ options, parameters at the end) of every case."""

    def decoupled(matrices, vectors, weight_decay):
        return [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]

    def adamw(matrices, vectors):
        return torch.optim.AdamW(
            decoupled(matrices, vectors, 0.1), lr=LR, betas=(0.9, 0.95), eps=1e-8
        )

    class SgdW(torch.optim.SGD):
        """torch's SGD without a decay of its own, after the matrices have decayed."""

        def step(self):
            with torch.no_grad():
                for param in self.param_groups[0]["params"]:
                    param.mul_(1 - LR * 0.3)
            super().step()

    def sgd(momentum, nesterov):
        return lambda matrices, vectors: SgdW(
            decoupled(matrices, vectors, 0.0), lr=LR, momentum=momentum, nesterov=nesterov
        )

    yield '.kind = "adamw"', run_torch(adamw)
    for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, True)):
        options = (
            f'.kind = "sgd", .values = {{{{"weight_decay", 0.3}}, {{"momentum", {momentum}}}, '
            f'{{"nesterov", {str(nesterov).lower()}}}}}'
        )
        yield options, run_torch(sgd(momentum, nesterov))
    options = '.kind = "lion", .values = {{"beta2", 0.99}, {"weight_decay", 0.5}}'
    yield options, run_numpy(lion_rule(LR, 0.9, 0.99, 0.5))
    vectors = adamw_rule(LR / 4, 0.9, 0.95, 1e-8, 0.1)
    for nesterov, match_rms in ((True, True), (False, True), (True, False)):
        scale = "match_rms" if match_rms else "original"
        options = (
            f'.kind = "muon", .values = {{{{"nesterov", {str(nesterov).lower()}}}, '
            f'{{"muon_scale", "{scale}"}}, {{"muon_adamw_lr", 0.25}}}}, .peak_lr = 1'
        )
        yield options, run_numpy(muon_rule(LR, 0.95, nesterov, 0.1, match_rms, vectors))


def flat(tensors):
    """The flat vector of the parameters, padded with zeros."""
    parts = []
    for tensor in tensors:
        parts.append(tensor.reshape(-1))
        parts.append(np.zeros(-tensor.size % PADDED))
    return np.concatenate(parts)


def write_array(name, rows, number):
    """One or many rows of numbers as a C++ array."""
    print(f"constexpr double {name} = {{")
    for row in rows:
        print("{" + ",".join(number(x) for x in row) + "},")
    print("};")


def write_fixture():
    """The fixture as C++: what goes in, as multiples of 1/256, and what comes out."""
    found = list(cases())
    size = flat(start()).size
    in_256ths = lambda x: str(round(x * 256))
    print("// Made by tools/golden/optim_oracle.py. Starts and gradients are in units of 1/256.")
    print("// clang-format off")
    print(f"constexpr int kOracleSteps = {STEPS};")
    print(f"constexpr int kOracleSize = {size};")
    print(f"constexpr double kOracleLr = {LR};")
    print(f"constexpr double kOracleGradScale = {GRAD_SCALE};")
    print("constexpr ParamRange kOracleRanges[] = {")
    begin = 0
    for shape in SHAPES:
        count = -(-int(np.prod(shape)) // PADDED) * PADDED
        matrix = len(shape) == 2
        rows, cols = shape if matrix else (0, 0)
        bools = str(matrix).lower()
        print(f"{{{begin}, {count}, {bools}, {bools}, {rows}, {cols}}},")
        begin += count
    print("};")
    write_array("kOracleStart[1][kOracleSize]", [flat(start())], in_256ths)
    steps = [flat(gradients(step)) for step in range(1, STEPS + 1)]
    write_array("kOracleGradients[kOracleSteps][kOracleSize]", steps, in_256ths)
    print("const OptimizerOptions kOracleOptions[] = {")
    for options, _ in found:
        print(f"{{{options}}},")
    print("};")
    ends = [flat(end) for _, end in found]
    write_array(f"kOracleEnds[{len(found)}][kOracleSize]", ends, lambda x: repr(float(x)))


def compare_muon():
    """How far torch's Muon is from ours, in the orthogonal matrix itself."""
    for i, shape in enumerate([(64, 64), (128, 48), (48, 128)]):
        grad = numbers(int(np.prod(shape)), i).reshape(shape)
        param = torch.zeros(shape, requires_grad=True)
        optimizer = torch.optim.Muon([param], lr=1.0, weight_decay=0.0, adjust_lr_fn="original")
        param.grad = torch.tensor(grad, dtype=torch.float32)
        optimizer.step()
        theirs = -param.detach().numpy() / max(1, shape[0] / shape[1]) ** 0.5
        ours = orthogonalized(grad)
        error = np.linalg.norm(theirs - ours) / np.linalg.norm(ours)
        print(f"{shape}: relative difference {error:.4f}, {error * 2**8:.1f} x 2^-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--compare-muon"]:
        compare_muon()
    else:
        write_fixture()
