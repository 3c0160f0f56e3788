#!/usr/bin/env python3
"""The loss of `atoll rl` and its gradient by torch in double: prints the numbers that
src/atoll/ops/policy/policy_loss_test.cpp has. The formula is that of TRL's GRPOTrainer with
loss_type="dapo", delta=None: token-level, clipped, with the k3 estimator of the divergence."""

import torch


def losses(logits, targets, sampled, reference, advantages, low, high, beta):
    """(R) losses of (R, V) logits."""
    logprob = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]
    ratio = torch.exp(logprob - sampled)
    bounded = torch.clamp(ratio, 1 - low, 1 + high)
    loss = -torch.min(ratio * advantages, bounded * advantages)
    distance = reference - logprob
    return loss + beta * (torch.exp(distance) - distance - 1)


def main():
    rows, vocab = 6, 5
    # Numbers that C++ makes in the same way.
    logits = torch.tensor([[((7 * r + 3 * v) % 11) / 4 - 1 for v in range(vocab)]
                           for r in range(rows)], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([(2 * r + 1) % vocab for r in range(rows)])
    advantages = torch.tensor([1.5, -0.5, 1.0, -1.0, 0.75, 0.0], dtype=torch.float64)
    logprob = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0].detach()
    # Ratios inside the bounds, above and below them.
    sampled = logprob - torch.tensor([0.0, 0.05, 0.5, 0.5, -0.6, 0.1], dtype=torch.float64)
    reference = logprob + torch.tensor([0.3, -0.2, 0.1, 0.0, -0.4, 0.25], dtype=torch.float64)
    loss = losses(logits, targets, sampled, reference, advantages, 0.2, 0.28, 0.05)
    loss.sum().backward()
    print("loss", ", ".join(f"{value:.17g}" for value in loss.tolist()))
    for row in logits.grad.tolist():
        print("gradient", ", ".join(f"{value:.17g}" for value in row))


if __name__ == "__main__":
    main()
