#!/usr/bin/env python3
"""Writes tests/golden/preferences: losses of compared answers, as torch computes them.

    python3 -m venv .venv-golden && .venv-golden/bin/pip install -r tests/oracle/requirements.txt
    .venv-golden/bin/python tools/golden/preferences.py [NAME...]

A fixture is expected.safetensors alone; its model is one of tests/golden/families, which is also the
reference. In it: tokens and targets of ten batches of two pairs, rows 2 k the chosen answer and
2 k + 1 the rejected one; of labelled answers the labels; the references; of the first batch, after
the model has moved away from the reference, each gradient; and the losses, margins and accuracies of
ten steps of AdamW with families.py's hyperparameters. tests/oracle/preferences.py compares runs with
TRL itself.
"""

import copy
import shutil
import sys

import torch
import torch.nn.functional as F
import transformers

import families

ROOT = families.ROOT
PAIRS = 2
BETA = 0.3
IGNORED = -1

# Base model, and how pairs become a loss.
CASES = {
    "sigmoid": ("llama3", dict(loss="sigmoid", smoothing=0.0)),
    "smoothed": ("qwen2", dict(loss="sigmoid", smoothing=0.2)),
    "robust": ("llama3", dict(loss="robust", smoothing=0.1)),
    "ipo": ("llama3", dict(loss="ipo", smoothing=0.0)),
    "hinge": ("gpt2", dict(loss="hinge", smoothing=0.0)),
    "orpo": ("llama3", dict(loss="orpo", smoothing=0.0)),
    "kto": ("llama3", dict(loss="kto", smoothing=0.0)),
    "capped": ("gemma2", dict(loss="sigmoid", smoothing=0.0)),
}
DESIRABLE_WEIGHT, UNDESIRABLE_WEIGHT = 1.0, 1.5


def batches(generator):
    """Answers of several lengths behind prompts of several lengths, padded."""
    shape = (families.STEPS, 2 * PAIRS, families.LENGTH)
    tokens = torch.randint(0, families.VOCAB, shape, generator=generator)
    targets = torch.full(shape, IGNORED)
    for step in range(families.STEPS):
        for pair in range(PAIRS):
            prompt = int(torch.randint(3, 9, (1,), generator=generator))
            first = tokens[step, 2 * pair, :prompt].clone()
            for row in (2 * pair, 2 * pair + 1):
                end = int(torch.randint(prompt + 2, families.LENGTH, (1,), generator=generator))
                tokens[step, row, :prompt] = first
                targets[step, row, prompt - 1:end - 1] = tokens[step, row, prompt:end]
                tokens[step, row, end - 1:] = 0
    return tokens, targets


def logps(model, tokens, targets):
    """Of each row: the log-probability of its answer, and how many tokens that has."""
    all_logps = model(input_ids=tokens).logits.log_softmax(-1)
    mask = targets != IGNORED
    picked = all_logps.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (picked * mask).sum(-1), mask.sum(-1)


def objective(case, model, tokens, targets, references, labels):
    """The mean loss of a batch, and its mean reward of chosen and of rejected answers."""
    logp, counts = logps(model, tokens, targets)
    ratio = logp - references
    chosen, rejected = ratio[0::2], ratio[1::2]
    h, e = BETA * (chosen - rejected), case["smoothing"]
    rewards = BETA * chosen, BETA * rejected
    right = chosen > rejected
    if case["loss"] == "sigmoid":
        loss = -(1 - e) * F.logsigmoid(h) - e * F.logsigmoid(-h)
    elif case["loss"] == "robust":
        loss = (-(1 - e) * F.logsigmoid(h) + e * F.logsigmoid(-h)) / (1 - 2 * e)
    elif case["loss"] == "hinge":
        loss = torch.relu(1 - h)
    elif case["loss"] == "ipo":
        by_token = ratio / counts
        loss = (by_token[0::2] - by_token[1::2] - 1 / (2 * BETA)) ** 2
    elif case["loss"] == "orpo":
        mean = (logp / counts).double()
        odds = mean - torch.log1p(-torch.exp(mean))
        loss = -mean[0::2] - BETA * F.logsigmoid(odds[0::2] - odds[1::2])
        rewards = BETA * mean[0::2], BETA * mean[1::2]
        right = mean[0::2] > mean[1::2]
    else:
        usual = rejected.mean().detach().clamp(min=0)
        sign = torch.where(labels, 1.0, -1.0)
        weight = torch.where(labels, DESIRABLE_WEIGHT, UNDESIRABLE_WEIGHT)
        loss = weight * (1 - torch.sigmoid(sign * BETA * (chosen - usual)))
        rewards = BETA * chosen[labels], BETA * chosen[~labels]
        right = sign * (chosen - usual) > 0
    means = [r.mean() if r.numel() else torch.zeros(()) for r in rewards]
    return loss.mean(), torch.stack([means[0].double(), means[1].double(),
                                     right.double().mean()]).detach()


def write_case(name, base, case, seed):
    directory = ROOT / "preferences" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    model = families.load(ROOT / "families" / base)
    tokens, targets = batches(generator)
    labels = torch.rand((families.STEPS, PAIRS), generator=generator) < 0.5
    labels[:, 0] = True
    labels[::2, 1] = False
    with torch.no_grad():
        references = torch.stack([logps(model, tokens[i], targets[i])[0]
                                  for i in range(families.STEPS)])
    expected = dict(tokens=tokens, targets=targets, references=references,
                    labels=labels.to(torch.int32))
    # References other than the model's own, or all losses would begin alike.
    shifted = references + 0.8 * torch.randn(references.shape, generator=generator)
    expected["shifted"] = shifted

    moved = copy.deepcopy(model)
    loss, _ = objective(case, moved, tokens[0], targets[0], shifted[0], labels[0])
    loss.backward()
    expected["loss"] = loss.float().reshape(1)
    for parameter, gradient in families.gradients_of(moved).items():
        expected["gradient." + parameter] = gradient

    optimizer = families.optimizer_of(model)
    losses, means = [], []
    for step in range(families.STEPS):
        optimizer.zero_grad()
        loss, of_step = objective(case, model, tokens[step], targets[step], references[step],
                                  labels[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), families.CLIP)
        optimizer.step()
        losses.append(loss.float().detach())
        means.append(of_step.float())
    expected["losses"] = torch.stack(losses)
    expected["means"] = torch.stack(means)
    families.save(directory / "expected.safetensors", expected)
    print(name, "losses", expected["losses"].tolist())


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    names = sys.argv[1:]
    for seed, (name, (base, case)) in enumerate(CASES.items()):
        if not names or name in names:
            write_case(name, base, case, 220 + seed)


if __name__ == "__main__":
    main()
