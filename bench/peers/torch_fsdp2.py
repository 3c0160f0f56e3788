"""One rank of PyTorch's fully_shard (FSDP2: parameters, gradients and state are cut, as in ZeRO 3);
bench/peers/ranks.py starts two."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torch_peer


def wrap(model, args):
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    for block in blocks:
        if args.compile:
            block.compile()
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch_peer.plain_step(model, torch_peer.adamw(model))


if __name__ == "__main__":
    torch_peer.run(wrap)
