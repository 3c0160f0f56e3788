#!/usr/bin/env python3
"""Writes tests/golden/adapter_gguf: adapters of tests/golden as GGUF files, as gguf-py has them.

    python3 -m venv .venv-golden && .venv-golden/bin/pip install gguf safetensors numpy
    .venv-golden/bin/python tools/golden/adapter_gguf.py

Names come from gguf's table of tensors, blocks and headers from its writer. What llama.cpp's
convert_lora_to_gguf.py does between (pairs of lora_a and lora_b, llama's order of rows in lora_b,
the embedding's lora_a transposed, experts stacked, F16 where Q8_0 has no whole blocks) is done here
once more, from its rules; the script itself needs a checkout of llama.cpp. One departure: for
GPT-2's Conv1D it writes factors that llama.cpp refuses to load (those of the transposed weight), so
here they are as for any other matrix.
"""

import collections
import json
import pathlib
import re

import gguf
import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"

Case = collections.namedtuple("Case", "adapter base arch kind")
CASES = [
    Case("lora/query_value", "llama3", "llama", "F32"),
    Case("lora/all_linear", "qwen2", "qwen2", "Q8_0"),
    Case("lora/conv1d", "gpt2", "gpt2", "F32"),
    Case("adapters/embeddings", "mixtral", "llama", "F16"),
    Case("adapters/expert_modules", "mixtral", "llama", "BF16"),
]
EXPERTS = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}


def permuted(weights, heads):
    """As LlamaModel.permute of convert_hf_to_gguf.py."""
    return (weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
            .swapaxes(1, 2).reshape(weights.shape))


def pairs_of(case, config):
    """GGUF's name of each adapted matrix, with its A and B."""
    names = gguf.get_tensor_name_map(
        {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[case.arch], 2)
    halves = collections.defaultdict(dict)
    for name, tensor in load_file(ROOT / case.adapter / "adapter_model.safetensors").items():
        match = re.fullmatch(
            r"base_model\.model\.(.*)\.lora_(?:embedding_)?([AB])(?:\.weight)?", name)
        if match is None:  # the embedding itself, which PEFT saves beside its factors
            assert name.endswith(".base_layer.weight"), name
            continue
        halves[match[1]][match[2]] = tensor
    pairs, experts = {}, collections.defaultdict(dict)
    for module, half in halves.items():
        a, b = half["A"], half["B"]
        match = re.fullmatch(r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.(w\d)", module)
        if match:
            experts[f"blk.{match[1]}.{EXPERTS[match[3]]}.weight"][int(match[2])] = (a, b)
            continue
        if case.arch == "llama" and module.endswith(("q_proj", "k_proj")):
            heads = "num_attention_heads" if module.endswith("q_proj") else "num_key_value_heads"
            b = permuted(b, config[heads])
        name = names.get_name(module + ".weight", try_suffixes=(".weight",))
        if name == "token_embd.weight":
            a = a.T
        pairs[name] = (a, b)
    for name, of in experts.items():
        pairs[name] = tuple(np.stack([of[e][i] for e in sorted(of)]) for i in (0, 1))
    return pairs


def quantized(data, kind):
    kind = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quants.quantize(np.ascontiguousarray(data), kind), kind
    except gguf.QuantError:
        kind = gguf.GGMLQuantizationType.F16
        return gguf.quants.quantize(np.ascontiguousarray(data), kind), kind


def write(case):
    config = json.loads((ROOT / "families" / case.base / "config.json").read_text())
    lora = json.loads((ROOT / case.adapter / "adapter_config.json").read_text())
    path = ROOT / "adapter_gguf" / (pathlib.Path(case.adapter).name + ".gguf")
    path.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(path, case.arch)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(lora["lora_alpha"]))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, (a, b) in sorted(pairs_of(case, config).items()):
        for suffix, data in ((".lora_a", a), (".lora_b", b)):
            data, kind = quantized(data, case.kind)
            writer.add_tensor(name + suffix, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    for one in CASES:
        write(one)
