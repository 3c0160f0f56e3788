"""One rank of PyTorch's ring attention (torch.distributed.tensor.experimental) in a Llama, whose
sequences two ranks share. bench/peers/context.py starts two.

PyTorch's own entry, context_parallel, knows CUDA's kernels alone. Its ring is a template over a
kernel, so this gives it the CPU's flash attention: keys and values travel by its rotater, partial
results are merged by its merger, in its head-and-tail order, which is atoll's. Only key-value heads
travel; they are repeated for their group of queries where the kernel is called.
"""

import json
import time

import torch
import torch.distributed
import torch.distributed.tensor.experimental._context_parallel._attention as ring
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import torch_peer

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
SEQUENCE = 2  # the dim of (batch, heads, sequence, width)


def of_all_heads(query, x):
    return x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)


def of_kv_heads(key, gradient):
    return gradient.unflatten(1, (key.shape[1], -1)).sum(2)


def forward_block(query, key, value, is_causal, scale):
    return FORWARD(query, of_all_heads(query, key), of_all_heads(query, value), 0.0, is_causal,
                   scale=scale)


def backward_block(query, key, value, out, logsumexp, is_causal, grad_out, scale):
    dq, dk, dv = BACKWARD(grad_out, query, of_all_heads(query, key), of_all_heads(query, value),
                          out, logsumexp, 0.0, is_causal, scale=scale)
    return dq, of_kv_heads(key, dk), of_kv_heads(value, dv)


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, scale):
        group = torch.distributed.group.WORLD
        out, lse = ring._templated_ring_attention(group, SEQUENCE, forward_block, query, key, value,
                                                  is_causal=True, scale=scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, dout):
        query, key, value, out, lse = ctx.saved_tensors
        dq, dk, dv = ring._templated_ring_attention_backward(
            torch.distributed.group.WORLD, SEQUENCE, backward_block, dout.contiguous(), "grad_out",
            query, key, value, out, lse, is_causal=True, scale=ctx.scale)
        return dq, dk, dv, None


def attention(module, query, key, value, attention_mask, scaling=None, **_):
    out = RingAttention.apply(query, key, value, scaling)
    return out.transpose(1, 2).contiguous(), None


def main():
    args = torch_peer.parse()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if ranks > 1:
        ALL_ATTENTION_FUNCTIONS.register("ring", attention)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.init, dtype=torch.float32, attn_implementation="ring" if ranks > 1 else "sdpa")
    model.config.use_cache = False
    model.train()
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    step = torch_peer.plain_step(model, torch_peer.adamw(model))
    parts = torch.arange(args.context).chunk(2 * ranks)
    mine = torch.cat((parts[rank], parts[2 * ranks - 1 - rank]))
    tokens = torch_peer.read_split(args.corpus, "train")
    times, losses = [], []
    for number in range(args.steps):
        begin = time.perf_counter()
        rows = torch_peer.batch_at(tokens, args, number * args.sequences, args.sequences)
        logits = model(input_ids=rows[:, mine], position_ids=mine[None]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, mine + 1].flatten())
        step(loss)
        times.append(1e3 * (time.perf_counter() - begin))
        losses.append(loss.detach())
    mean = torch.stack(losses)
    torch.distributed.all_reduce(mean)
    if rank == 0:
        print(json.dumps({"step_ms": times, "loss": (mean / ranks).tolist()}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
