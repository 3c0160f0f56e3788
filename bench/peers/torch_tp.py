"""One rank of PyTorch's tensor parallel (DTensor, parallelize_module) of a Llama; both ranks take
the same batch. bench/peers/tensor.py starts two."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

import torch_peer


def wrap(model, args):
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    plan = {"lm_head": ColwiseParallel(output_layouts=Replicate())}
    for i in range(len(model.model.layers)):
        at = f"model.layers.{i}."
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj",
                     "mlp.up_proj"):
            plan[at + name] = ColwiseParallel()
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            plan[at + name] = RowwiseParallel()
    parallelize_module(model, mesh, plan)
    if args.compile:
        for block in model.model.layers:
            block.compile()
    return model, torch_peer.plain_step(model, torch_peer.adamw(model))


if __name__ == "__main__":
    torch_peer.run(wrap, same_batch=True)
