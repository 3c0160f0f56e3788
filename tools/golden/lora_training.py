#!/usr/bin/env python3
"""Writes tests/golden/lora_training: adapters of PEFT beyond plain factors, and how they train.

    python3 -m venv .venv-golden && .venv-golden/bin/pip install -r tests/oracle/requirements.txt
    .venv-golden/bin/python tools/golden/lora_training.py [NAME...]

A fixture is an adapter on a model of tests/golden/families, as PEFT saves it, with
expected.safetensors beside it: tokens and targets of ten batches; of the first the logits, the loss
and the gradient of all that is trained, under the names of the adapter's file; and the losses of ten
steps of AdamW with families.py's hyperparameters. Stacked experts (target_parameters) and rows of
tokens (trainable_token_indices) are adapted where their names say so.
"""

import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file

import families
from adapters import randomize, tidy_config

ROOT = families.ROOT

# Base model, and what LoraConfig is given.
CASES = {
    "patterns": ("llama3", dict(
        target_modules=["q_proj", "k_proj", "v_proj", "down_proj"],
        exclude_modules=r".*\.0\.self_attn\.k_proj", use_rslora=True,
        rank_pattern={"v_proj": 3, r"layers\.1\..*down_proj": 1},
        alpha_pattern={"q_proj": 5, "model.layers.0.mlp.down_proj": 2})),
    "bias_all": ("gpt2", dict(target_modules=["attn.c_proj"], bias="all", fan_in_fan_out=True)),
    "bias_lora_only": ("qwen2", dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
                                     bias="lora_only")),
    "dora": ("llama3", dict(target_modules=["v_proj", "up_proj", "down_proj"], use_dora=True)),
    "dora_conv1d": ("gpt2", dict(target_modules=["c_attn", "mlp.c_fc"], use_dora=True,
                                 use_rslora=True, fan_in_fan_out=True)),
    "dora_patterns": ("qwen2", dict(target_modules=["q_proj", "v_proj"], use_dora=True,
                                    rank_pattern={"v_proj": 2}, bias="none")),
    "embedding": ("llama2", dict(target_modules=["embed_tokens", "q_proj"])),
    "embedding_tied": ("llama3", dict(target_modules=["embed_tokens", "v_proj"])),
    "embedding_scaled": ("gemma3", dict(target_modules=["embed_tokens", "o_proj"])),
    "head": ("llama2", dict(target_modules=["lm_head", "q_proj"], use_rslora=True)),
    "head_tied": ("llama3", dict(target_modules=["lm_head", "v_proj"])),
    "experts": ("mixtral", dict(target_modules=["q_proj"], target_parameters=[
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "experts_down": ("qwen3_moe", dict(target_modules=[], use_rslora=True, target_parameters=[
        "mlp.experts.down_proj"], rank_pattern={r"layers\.1\..*down_proj": 3})),
    "experts_gpt_oss": ("gpt_oss", dict(target_modules=["k_proj", "o_proj"], target_parameters=[
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "tokens": ("llama2", dict(target_modules=["k_proj"], trainable_token_indices=[7, 100, 3])),
    "tokens_positions": ("gpt2", dict(target_modules=["attn.c_proj"], fan_in_fan_out=True,
                                      trainable_token_indices=[0, 5, 99])),
    "tokens_scaled": ("gemma3", dict(target_modules=["o_proj"], trainable_token_indices=[70])),
    "tokens_tied": ("llama3", dict(target_modules=["v_proj"], trainable_token_indices=[7, 100, 3])),
}


def name_in_file(parameter):
    return parameter.replace(".lora_magnitude_vector.default.weight",
                             ".lora_magnitude_vector").replace(".default", "")


def losses_of_steps(model, tokens, targets):
    """As families.losses_of_steps, of what is trained."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in trained if p.dim() >= 2], weight_decay=families.WEIGHT_DECAY),
         dict(params=[p for p in trained if p.dim() < 2], weight_decay=0.0)],
        **families.HYPERPARAMETERS)
    losses = []
    for step in range(families.STEPS):
        optimizer.zero_grad()
        loss = families.loss_of(model, tokens[step], targets[step])[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, families.CLIP)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def write_case(name, base, options, seed):
    directory = ROOT / "lora_training" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    options = dict(r=4, lora_alpha=8, task_type="CAUSAL_LM") | options
    adapted = peft.get_peft_model(families.load(ROOT / "families" / base),
                                  peft.LoraConfig(**options))
    randomize(adapted, generator)
    adapted.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    tidy_config(directory / "adapter_config.json", base)
    adapted.train()

    tokens, targets = families.batches(generator)
    logits, loss = families.loss_of(adapted, tokens[0], targets[0])
    loss.backward()
    expected = dict(tokens=tokens, targets=targets, logits=logits, loss=loss.reshape(1))
    saved = load_file(directory / "adapter_model.safetensors")
    for parameter_name, parameter in adapted.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None, parameter_name
            continue
        assert name_in_file(parameter_name) in saved, parameter_name
        expected["gradient." + name_in_file(parameter_name)] = parameter.grad.clone()
    expected["losses"] = losses_of_steps(adapted, tokens, targets)
    families.save(directory / "expected.safetensors", expected)
    print(name, "losses", expected["losses"].tolist())


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    names = sys.argv[1:]
    for seed, (name, (base, options)) in enumerate(CASES.items()):
        if not names or name in names:
            write_case(name, base, options, 120 + seed)


if __name__ == "__main__":
    main()
