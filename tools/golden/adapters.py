#!/usr/bin/env python3
"""Writes the fixtures of tests/golden/adapters: one small PEFT adapter for each way to make one.

    python3 -m venv .venv-golden && .venv-golden/bin/pip install torch transformers peft numpy
    .venv-golden/bin/python tools/golden/adapters.py [NAME...]

A fixture is an adapter on a model of tests/golden/families, as PEFT saves it, with
expected.safetensors beside it: each tensor of the base model that the adapter changes, as PEFT's
merge_and_unload leaves it, under the name that it has in the base model's files.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"

# Base model, and what LoraConfig is given.
CASES = {
    "patterns": ("llama3", dict(
        target_modules=r"model\.layers\.\d+\.(self_attn\.(q|k|v)_proj|mlp\.down_proj)",
        exclude_modules=r".*\.0\.self_attn\.k_proj", use_rslora=True,
        rank_pattern={"v_proj": 3, r"layers\.1\..*down_proj": 1},
        alpha_pattern={"q_proj": 5, r"model.layers.0.mlp.down_proj": 2})),
    "layers": ("qwen2", dict(
        target_modules=["q_proj", "k_proj", "model.layers.0.self_attn.o_proj"],
        exclude_modules=["k_proj"],
        layers_to_transform=[1], layers_pattern="layers", bias="lora_only",
        init_lora_weights="gaussian")),
    "bias_all": ("gpt2", dict(target_modules=["attn.c_proj"], bias="all", fan_in_fan_out=True)),
    "lora_bias": ("gpt2", dict(target_modules=["attn.c_attn"], lora_bias=True,
                               layers_to_transform=0)),
    "dora": ("llama3", dict(target_modules=["v_proj", "down_proj"], use_dora=True,
                            init_lora_weights="orthogonal")),
    "dora_conv1d": ("gpt2", dict(target_modules=["mlp.c_fc"], use_dora=True, use_rslora=True)),
    "embeddings": ("mixtral", dict(target_modules=["embed_tokens", "lm_head"])),
    "dora_embeddings": ("llama2", dict(target_modules=["embed_tokens", "lm_head"],
                                       use_dora=True)),
    "saved_modules": ("llama2", dict(target_modules=["v_proj", "lm_head"],
                                     modules_to_save=["lm_head", "norm", "1.mlp"])),
    "tokens": ("llama3", dict(target_modules=["k_proj"], trainable_token_indices=[7, 100, 3])),
    "tokens_by_module": ("llama2", dict(
        target_modules=["k_proj"],
        trainable_token_indices={"embed_tokens": [1, 9], "lm_head": [5]})),
    "experts": ("qwen3_moe", dict(
        target_modules=["o_proj"], r=2,
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    # Gate and up in alternate columns, and matrices the other way round.
    "experts_gpt_oss": ("gpt_oss", dict(
        target_modules=["o_proj"], r=2,
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    # New tokens: PEFT saves the embedding, which has more rows than the base model's.
    "resized": ("llama3", dict(target_modules=["k_proj"])),
    # The base model ties its head to the embedding. PEFT then keeps two tables apart, or one.
    "untied_by_saving": ("llama3", dict(target_modules=["k_proj"],
                                        modules_to_save=["embed_tokens"])),
    "untied_by_lora": ("llama3", dict(target_modules=["embed_tokens"])),
    "tied_lora": ("llama3", dict(target_modules=["embed_tokens"], ensure_weight_tying=True)),
    "one_expert_parameter": ("mixtral", dict(
        target_modules=[], r=2, target_parameters=["experts.down_proj"])),
}


def load(base, name=""):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / "families" / base, dtype=torch.float32).eval()
    if name == "resized":
        model.resize_token_embeddings(105)
    return model


def randomize(adapted, generator):
    """All that is trained, far from where it starts."""
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if not parameter.requires_grad:
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if "magnitude" in name:
                parameter.mul_(1 + 0.3 * noise)
            elif "lora_" in name:
                parameter.copy_(0.3 * noise)
            else:
                parameter.add_(0.2 * noise)


def tidy_config(path, base):
    config = json.loads(path.read_text())
    for key, value in config.items():
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            value.sort()  # a set, written in no particular order
    config["base_model_name_or_path"] = base
    path.write_text(json.dumps(config, indent=2) + "\n")


def write_expected(directory, base):
    """From the files, as anybody would load them."""
    adapted = peft.PeftModel.from_pretrained(load(base, directory.name), directory).eval()
    with tempfile.TemporaryDirectory() as merged:
        adapted.merge_and_unload().save_pretrained(merged)
        after = load_file(pathlib.Path(merged) / "model.safetensors")
    before = load_file(ROOT / "families" / base / "model.safetensors")
    changed = {name: tensor.contiguous() for name, tensor in after.items()
               if name not in before or not torch.equal(tensor, before[name])}
    save_file(changed, directory / "expected.safetensors")
    print(directory.name, len(changed), "tensors change")


def write_expected_tables(directory, base):
    """The embedding and the head as the adapter computes with them. merge_and_unload adds what
    each of them is changed by to the one tensor that both are."""
    adapted = peft.PeftModel.from_pretrained(load(base), directory).eval().base_model.model
    tables = {}
    for name, module in (("model.embed_tokens", adapted.model.embed_tokens),
                         ("lm_head", adapted.lm_head)):
        weight = getattr(module, "base_layer", module).weight.detach().clone()
        if hasattr(module, "base_layer"):
            weight += module.get_delta_weight("default").detach()
        tables[name + ".weight"] = weight
    if torch.allclose(*tables.values(), atol=1e-6):
        del tables["lm_head.weight"]
    save_file(tables, directory / "expected.safetensors")
    print(directory.name, len(tables), "tables")


def write_case(name, base, options, seed):
    directory = ROOT / "adapters" / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    torch.manual_seed(seed)
    options = dict(r=4, lora_alpha=8, task_type="CAUSAL_LM") | options
    adapted = peft.get_peft_model(load(base, name), peft.LoraConfig(**options))
    randomize(adapted, torch.Generator().manual_seed(seed))
    adapted.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)
    tidy_config(directory / "adapter_config.json", base)
    tables = name in ("untied_by_lora", "tied_lora")
    (write_expected_tables if tables else write_expected)(directory, base)


def write_expert_modules():
    """As PEFT with transformers 4 saved it, where each expert's matrices were modules."""
    directory = ROOT / "adapters" / "expert_modules"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(90)
    tensors = {}
    for layer in range(2):
        at = f"base_model.model.model.layers.{layer}.block_sparse_moe.experts"
        for expert in range(4):
            for matrix, rows, columns in (("w1", 24, 32), ("w2", 32, 24), ("w3", 24, 32)):
                for part, shape in (("A", (2, columns)), ("B", (rows, 2))):
                    tensors[f"{at}.{expert}.{matrix}.lora_{part}.weight"] = (
                        0.3 * torch.randn(shape, generator=generator))
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "mixtral",
              "r": 2, "lora_alpha": 8, "target_modules": ["w1", "w2", "w3"], "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_expected(directory, "mixtral")


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    names = sys.argv[1:]
    for seed, (name, (base, options)) in enumerate(CASES.items()):
        if not names or name in names:
            write_case(name, base, options, 50 + seed)
    if not names or "expert_modules" in names:
        write_expert_modules()


if __name__ == "__main__":
    main()
