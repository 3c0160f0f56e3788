"""One rank of PyTorch's DistributedDataParallel; bench/peers/ranks.py starts two."""

import torch

import torch_peer


def wrap(model, args):
    # The settings that its documentation recommends for a graph that does not change.
    wrapped = torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=True, static_graph=True)
    step = torch_peer.plain_step(model, torch_peer.adamw(model))
    return torch.compile(wrapped) if args.compile else wrapped, step


if __name__ == "__main__":
    torch_peer.run(wrap)
