"""Writes src/atoll/ckpt/testdata/quantised: one model directory for each way of quantising, whose
`x.weight` is quantised, with the numbers that the method's own code makes of it as the tensor
`expected`. Run from anywhere:

    python3 -m venv venv && venv/bin/pip install numpy safetensors bitsandbytes --no-deps
    venv/bin/python tools/golden/quantised.py

bitsandbytes' numbers come from its own library for CPUs (called by ctypes, so that torch is not
needed; the wrappers in bitsandbytes.functional pass the same tensors). Those of GPTQ and AWQ come
from their published formulas in f16: w = s (q - z), with the packing of AutoGPTQ (version 1, zeros
less one), GPTQModel (version 2) and AutoAWQ (gemm). MXFP4 needs transformers and torch besides,
FP8 torch.
"""

import ctypes
import importlib.util
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

DATA = pathlib.Path(__file__).resolve().parents[2] / "src/atoll/ckpt/testdata/quantised"
RNG = np.random.default_rng(11)


def write(name, config, tensors):
    """A directory as Hugging Face's tools keep it, of what these tests read."""
    directory = DATA / name
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"model_type": "llama", "quantization_config": config}, indent=1)
    (directory / "config.json").write_text(text + "\n")
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()},
              directory / "model.safetensors")


def narrowed(values, dtype):
    """f32 rounded to a torch dtype, as f32."""
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.view(np.float32)
    return values


def bitsandbytes_library():
    spec = importlib.util.find_spec("bitsandbytes")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    return ctypes.CDLL(str(folder / "libbitsandbytes_cpu.so"))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
                -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
                0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)
# bitsandbytes.functional.get_4bit_type("fp4"), over its largest magnitude.
FP4 = np.array([0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0, -0.0, -0.0625, -8.0, -12.0, -4.0, -6.0,
                -2.0, -3.0], np.float32) / np.float32(12)


def dynamic_map():
    """bitsandbytes.functional.create_dynamic_map(): the 8 bit codes of nested factors."""
    data = []
    for i in range(7):
        count = 2 ** i + 1
        edges = np.linspace(0.1, 1, count, dtype=np.float32)
        means = ((edges[:-1] + edges[1:]) / np.float32(2)).astype(np.float64)
        data += ((10 ** (-6 + i)) * means).tolist()
        data += (-(10 ** (-6 + i)) * means).tolist()
    data += [0, 1.0]
    return np.sort(np.array(data + [0] * (256 - len(data)), np.float32))


def four_bit(library, name, kind, rows, columns, block, dtype, nested):
    """Random codes and factors; the library dequantises both."""
    elements = rows * columns
    codes = RNG.integers(0, 256, (elements + 1) // 2, dtype=np.uint8)
    blocks = -(-elements // block)
    state = {"quant_type": kind, "blocksize": block, "dtype": dtype, "shape": [rows, columns]}
    tensors = {"x.weight": codes.reshape(-1, 1), "x.weight.quant_map": NF4 if kind == "nf4" else FP4}
    if nested:
        group = 256
        factor_map = dynamic_map()
        quantised = RNG.integers(0, 256, blocks, dtype=np.uint8)
        groups = RNG.uniform(0.01, 0.05, -(-blocks // group)).astype(np.float32)
        offset = 0.0625123
        factors = np.empty(blocks, np.float32)
        library.cdequantize_blockwise_cpu_fp32(
            pointer(factor_map), pointer(quantised), pointer(groups), pointer(factors),
            ctypes.c_longlong(group), ctypes.c_longlong(blocks))
        factors = factors + np.float32(offset)
        state.update(nested_blocksize=group, nested_dtype="float32", nested_offset=offset)
        tensors.update({"x.weight.absmax": quantised, "x.weight.nested_absmax": groups,
                        "x.weight.nested_quant_map": factor_map})
    else:
        factors = RNG.uniform(0.01, 0.2, blocks).astype(np.float32)
        tensors["x.weight.absmax"] = factors
    # Its code in Python, which it also uses for odd widths.
    pairs = np.stack([codes >> 4, codes & 15], 1).reshape(-1)[:elements]
    out = tensors["x.weight.quant_map"][pairs] * factors[np.arange(elements) // block]
    if columns % 2 == 0:
        own = np.empty(elements, np.float32)
        function = getattr(library, f"cdequantize_blockwise_cpu_{kind}_fp32")
        function(pointer(codes), pointer(factors), pointer(own), ctypes.c_longlong(block),
                 ctypes.c_longlong(rows), ctypes.c_longlong(columns))
        print(name, "differs from the library by", np.abs(own - out).max())
        out = own
    tensors[f"x.weight.quant_state.bitsandbytes__{kind}"] = np.frombuffer(
        json.dumps(state).encode(), np.uint8)
    expected = narrowed(out, dtype).reshape(rows, columns)
    tensors["expected"] = expected.astype(np.float16) if dtype == "float16" else expected
    write(name, {"quant_method": "bitsandbytes", "load_in_4bit": True,
                 "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": nested}, tensors)


def int8(name):
    """bitsandbytes.functional.int8_vectorwise_dequant: A * stats * (1 / 127)."""
    values = RNG.integers(-127, 128, (6, 33)).astype(np.int8)
    factors = RNG.uniform(0.01, 3, 6).astype(np.float32)
    expected = (values.astype(np.float32) * factors[:, None]) * np.float32(0.007874015718698502)
    write(name, {"quant_method": "bitsandbytes", "load_in_8bit": True},
          {"x.weight": values, "x.SCB": factors, "x.weight_format": np.zeros((), np.uint8),
           "expected": expected})


def packed_words(values, bits, order=None):
    """(n, 32 / bits) small integers as n words, the first in the lowest bits."""
    words = np.zeros(len(values), np.uint32)
    for place, column in enumerate(order or range(values.shape[1])):
        words |= values[:, column].astype(np.uint32) << np.uint32(bits * place)
    return words


def affine(rng, rows, columns, group, bits):
    q = rng.integers(0, 2 ** bits, (columns, rows))
    groups = -(-columns // group)
    z = rng.integers(0, 2 ** bits, (groups, rows))
    s = rng.uniform(0.001, 0.1, (groups, rows)).astype(np.float16)
    return q, z, s


def gptq(name, rows, columns, group, bits, sym, act_order, version):
    q, z, s = affine(RNG, rows, columns, group, bits)
    if sym:
        z[:] = 2 ** (bits - 1)
    g_idx = np.arange(columns, dtype=np.int32) // group
    if act_order:
        g_idx = RNG.permutation(g_idx)
    per = 32 // bits
    # q: words down the inputs; z: along the outputs.
    down = q.reshape(columns // per, per, rows).transpose(0, 2, 1).reshape(-1, per)
    along = z.reshape(-1, per)
    words = packed_words(along, bits)
    if version == "gptq":  # as GPTQModel's convert_gptq_v2_to_v1_format: the whole word less ones
        words = words - np.uint32(0x11111111 if bits == 4 else 0x01010101)
    expected = s[g_idx] * (q - z[g_idx]).astype(np.float16)  # (in, out)
    tensors = {"x.qweight": packed_words(down, bits).view(np.int32).reshape(columns // per, rows),
               "x.qzeros": words.view(np.int32).reshape(-1, rows // per),
               "x.scales": s, "x.g_idx": g_idx, "expected": expected.T.astype(np.float32)}
    write(name, {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym,
                 "desc_act": act_order, "checkpoint_format": version}, tensors)


def awq(name, rows, columns, group):
    q, z, s = affine(RNG, rows, columns, group, 4)
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ: what stands in each place of a word
    g_idx = np.arange(columns) // group
    expected = s[g_idx] * (q - z[g_idx]).astype(np.float16)
    tensors = {
        "x.qweight": packed_words(q.reshape(-1, 8), 4, order).view(np.int32).reshape(columns, -1),
        "x.qzeros": packed_words(z.reshape(-1, 8), 4, order).view(np.int32).reshape(len(z), -1),
        "x.scales": s, "expected": expected.T.astype(np.float32)}
    write(name, {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
                 "version": "gemm"}, tensors)


def fp8(name, scale_dtype):
    """DeepSeek V3's blocks, ragged at both ends; the formula of its program to widen checkpoints."""
    import torch

    generator = torch.Generator().manual_seed(12)
    wide = torch.randn(129, 130, generator=generator)
    wide[0, :6] = torch.tensor([0.0, -0.0, 448.0, -448.0, 2.0 ** -9, -(2.0 ** -7)])  # some subnormal
    codes = wide.to(torch.float8_e4m3fn)
    scales = torch.rand(2, 2, generator=generator) * 0.01 + 1e-4
    scales = scales.to(getattr(torch, scale_dtype))
    blocks = scales.float().repeat_interleave(128, 0)[:129].repeat_interleave(128, 1)[:, :130]
    expected = (codes.to(torch.float32) * blocks).to(torch.bfloat16).to(torch.float32)
    from safetensors.torch import save_file as save_torch

    write(name, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                  "weight_block_size": [128, 128]}, {})
    save_torch({"x.weight": codes, "x.weight_scale_inv": scales, "expected": expected},
               DATA / name / "model.safetensors")


def mxfp4():
    """Two experts of gpt-oss, with what transformers (which needs torch) widens them to."""
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = np.random.default_rng(12)
    tensors = {}
    for stack, rows, columns in (("gate_up_proj", 12, 64), ("down_proj", 5, 96)):
        name = "model.layers.0.mlp.experts." + stack
        blocks = generator.integers(0, 256, (2, rows, columns // 32, 16), dtype=np.uint8)
        scales = generator.integers(110, 140, (2, rows, columns // 32), dtype=np.uint8)
        wide = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales))
        tensors |= {name + "_blocks": blocks, name + "_scales": scales,
                    "expected." + stack: wide.float().numpy()}
    write("mxfp4", {"quant_method": "mxfp4"}, tensors)


def main():
    library = bitsandbytes_library()
    four_bit(library, "nf4", "nf4", 6, 96, 64, "bfloat16", False)
    four_bit(library, "nf4_nested", "nf4", 136, 128, 64, "float16", True)
    four_bit(library, "nf4_odd", "nf4", 5, 27, 64, "float32", False)  # rows begin within a byte
    four_bit(library, "fp4", "fp4", 4, 64, 128, "float32", False)
    int8("int8")
    gptq("gptq4", 16, 48, 16, 4, False, False, "gptq")
    gptq("gptq4_act", 8, 64, 32, 4, True, True, "gptq")
    gptq("gptq4_v2", 8, 32, 32, 4, False, False, "gptq_v2")
    gptq("gptq8", 8, 32, 16, 8, False, True, "gptq")
    awq("awq", 24, 32, 16)
    mxfp4()
    fp8("fp8", "float32")
    fp8("fp8_narrow_scales", "bfloat16")


if __name__ == "__main__":
    main()
