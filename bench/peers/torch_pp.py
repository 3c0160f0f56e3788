"""One rank of a pipeline of PyTorch (torch.distributed.pipelining, Schedule1F1B) of a Llama; both
ranks read the same micro-batches. bench/peers/pipeline.py starts two.

The stages are cut where atoll cuts them: such that the slower one is as fast as can be, by the
multiplications of a block and of the head.
"""

import json
import time

import torch
import torch.distributed
import transformers
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import shapes
import torch_peer


class Stage(torch.nn.Module):
    """The embedding and the first blocks, or the blocks that are left, the norm and the head."""

    def __init__(self, model, blocks, context, is_first):
        super().__init__()
        inner = model.model
        self.embed = inner.embed_tokens if is_first else None
        self.blocks = torch.nn.ModuleList(inner.layers[i] for i in blocks)
        self.norm, self.head = (None, None) if is_first else (inner.norm, model.lm_head)
        with torch.no_grad():
            positions = torch.arange(context)[None]
            self.rotation = inner.rotary_emb(torch.zeros(1, context, 1), positions)

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x, attention_mask=None, position_embeddings=self.rotation)
            x = x[0] if isinstance(x, tuple) else x
        return x if self.head is None else self.head(self.norm(x))


def blocks_of_first(config):
    """How many blocks the first of two ranks has."""
    width, heads = config.hidden_size, config.num_attention_heads
    kv = config.num_key_value_heads * width // heads
    block = 2 * width * width + 2 * width * kv + 3 * width * config.intermediate_size
    head, count = width * config.vocab_size, config.num_hidden_layers
    return min(range(1, count), key=lambda n: max(n * block, (count - n) * block + head))


def clipped_step(model, optimizer):
    """Clips by the norm over both stages, then updates."""
    squares = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum()
    torch.distributed.all_reduce(squares)
    scale = min(1.0, torch_peer.CLIP / (float(squares.sqrt()) + 1e-6))
    if scale < 1:
        torch._foreach_mul_([p.grad for p in model.parameters()], scale)
    optimizer.step()
    optimizer.zero_grad()


def main():
    args = torch_peer.parse()
    micro_batches = shapes.SHAPES[args.model].micro_batches
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.init, dtype=torch.float32, attn_implementation="sdpa")
    model.config.use_cache = False
    model.train()
    first = blocks_of_first(model.config)
    blocks = range(first) if rank == 0 else range(first, model.config.num_hidden_layers)
    part = Stage(model, blocks, args.context, rank == 0)
    optimizer = torch_peer.adamw(part)
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))

    def loss_of(logits, targets):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    schedule = Schedule1F1B(stage, micro_batches, loss_fn=loss_of)
    tokens = torch_peer.read_split(args.corpus, "train")
    sequences = args.sequences * micro_batches
    times, losses = [], []
    for number in range(args.steps):
        begin = time.perf_counter()
        rows = torch_peer.batch_at(tokens, args, number * sequences, sequences)
        found = []
        if rank == 0:
            schedule.step(rows[:, :-1])
        else:
            schedule.step(target=rows[:, 1:].contiguous(), losses=found)
        clipped_step(part, optimizer)
        times.append(1e3 * (time.perf_counter() - begin))
        losses.append(torch.stack(found).mean().detach() if found else torch.zeros(()))
    mean = torch.stack(losses)
    torch.distributed.all_reduce(mean)  # the first rank has none
    if rank == 0:
        print(json.dumps({"step_ms": times, "loss": mean.tolist()}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
