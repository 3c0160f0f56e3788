"""Training steps of PyTorch on a GPU, compiled, in bf16; bench/cuda/runs.py starts it. The models are
those of bench/peers/torch_models.py. Prints a line of JSON: seconds of each step, and its losses."""

import argparse
import json
import pathlib
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import step_shapes  # noqa: E402
import torch_models  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", help="JSON of a step_shapes.Shape")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--micro-batches", type=int, default=1)
    args = parser.parse_args()
    shape = step_shapes.Shape(**json.loads(args.shape))
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = torch_models.Model(shape).cuda()

    @torch.compile
    def loss_of(tokens, targets):
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    tokens = torch.randint(shape.vocab, (shape.batch, shape.context + 1), device="cuda")
    seconds, losses = [], []
    for _ in range(args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(args.micro_batches):
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(tokens[:, :-1], tokens[:, 1:]) / args.micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        losses.append(args.micro_batches * loss.item())
    print(json.dumps({"step_seconds": seconds, "losses": losses, "version": torch.__version__,
                      "device": torch.cuda.get_device_name()}))


if __name__ == "__main__":
    main()
