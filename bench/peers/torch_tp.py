"""One rank of PyTorch's tensor parallel (DTensor, parallelize_module) of a Llama; both ranks take
the same batch. bench/peers/tensor.py starts two."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

import torch_peer


def mixed_step(model):
    """Clipping and AdamW of parameters of which some are DTensors: PyTorch's own clipping and its fused
    AdamW take no list that mixes them with tensors."""
    parameters = list(model.parameters())
    shared = [p for p in parameters if isinstance(p, DTensor)]
    whole = [p for p in parameters if not isinstance(p, DTensor)]
    groups = [{"params": [p for p in kind if (p.dim() >= 2) == decays],
               "weight_decay": torch_peer.DECAY if decays else 0.0}
              for kind in (shared, whole) for decays in (True, False)]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=torch_peer.LR,
                                  betas=torch_peer.BETAS, eps=torch_peer.EPS, fused=True)

    def step(loss):
        loss.backward()
        with torch.no_grad():
            local = [p.grad.to_local() for p in shared]
            squares = torch.stack([g.square().sum() for g in local]).sum()
            torch.distributed.all_reduce(squares)
            squares += torch.stack([p.grad.square().sum() for p in whole]).sum()
            scale = min(1.0, torch_peer.CLIP / (float(squares.sqrt()) + 1e-6))
            if scale < 1:
                torch._foreach_mul_(local + [p.grad for p in whole], scale)
        optimizer.step()
        optimizer.zero_grad()
    return step


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
    return model, mixed_step(model)


if __name__ == "__main__":
    torch_peer.run(wrap, same_batch=True)
