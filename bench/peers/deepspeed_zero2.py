"""One rank of DeepSpeed with ZeRO 2; bench/peers/ranks.py starts two. Needs DeepSpeed, which
installs without its compiled operations:
DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed."""

import deepspeed
import torch

import torch_peer


def wrap(model, args):
    optimizer = torch_peer.adamw(model)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": args.sequences,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": torch_peer.CLIP,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 2, "contiguous_gradients": True, "overlap_comm": True},
        "steps_per_print": 1 << 30,
    })
    if args.compile:
        engine.compile()

    def step(loss):
        engine.backward(loss)
        engine.step()
    return engine, step


if __name__ == "__main__":
    torch_peer.run(wrap)
