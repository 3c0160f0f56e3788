"""Writes src/atoll/ckpt/testdata/quants.gguf and quants.f32 with the `gguf` package: one tensor of
each type that atoll reads, metadata of every kind, and the f32 values that `gguf.quants` makes of
the tensors, in their order in the file. Run from anywhere:

    python3 -m venv venv && venv/bin/pip install gguf && venv/bin/python tools/golden/gguf_oracle.py

With a GGUF file and a directory that `atoll import` made of it in f32, compares every tensor of the
two instead (llama's permuted rows put back here by another formula):

    venv/bin/python tools/golden/gguf_oracle.py model.gguf directory

With a GGUF file alone, reads the tensors X that come with X.f32, what atoll takes them for:

    ATOLL_GGUF_GOLDEN=. build/release/src/atoll/ckpt_test --gtest_filter=KQuants.Writes*
    venv/bin/python tools/golden/gguf_oracle.py k_quants.gguf
"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np

DATA = pathlib.Path(__file__).resolve().parents[2] / "src/atoll/ckpt/testdata"
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
         "Q5_K", "Q6_K", "MXFP4"]
# Where in a block its f16 scales lie: random bytes there would be infinities and NaNs.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def blocks(rng, name, rows, width):
    """Random rows of a type, as bytes."""
    kind = gguf.GGMLQuantizationType[name]
    if name in ("F32", "F16", "BF16"):
        return gguf.quants.quantize(rng.standard_normal((rows, width)).astype(np.float32), kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows * width // elements, size), dtype=np.uint8)
    if name == "MXFP4":
        data[:, 0] %= 253  # above, 12 times half the power is infinite
        data[:4, 0] = [0, 1, 2, 252]
    for at in SCALES.get(name, []):
        scale = rng.standard_normal(len(data)).astype(np.float16)
        data[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)


def write():
    """The fixture."""
    rng = np.random.default_rng(7)
    DATA.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(DATA / "quants.gguf", "oracle")
    writer.add_uint8("kind.u8", 200)
    writer.add_int8("kind.i8", -100)
    writer.add_uint16("kind.u16", 60000)
    writer.add_int16("kind.i16", -30000)
    writer.add_uint32("kind.u32", 4000000000)
    writer.add_int32("kind.i32", -2000000000)
    writer.add_uint64("kind.u64", 1 << 40)
    writer.add_int64("kind.i64", -(1 << 40))
    writer.add_float32("kind.f32", 0.5)
    writer.add_float64("kind.f64", 0.1)
    writer.add_bool("kind.bool", True)
    writer.add_string("kind.string", "grüße")
    writer.add_array("kind.strings", ["a", "", "ccc"])
    writer.add_array("kind.integers", [1, -2, 3])
    writer.add_array("kind.numbers", [0.25, -1.5])
    expected = []
    for name in TYPES:
        data = blocks(rng, name, 2, 256)
        kind = gguf.GGMLQuantizationType[name]
        expected.append(gguf.quants.dequantize(data, kind).astype(np.float32))
        writer.add_tensor(name, data, raw_dtype=kind)
    # What Q8_0 makes of floats: spread over magnitudes, with ties, a block of zeros.
    source = rng.standard_normal((2, 128)).astype(np.float32)
    source *= np.float32(10) ** rng.integers(-6, 4, (2, 128)).astype(np.float32)
    source[0, :32] = np.arange(-16, 16) / 2
    source[0, 5] = 127
    source[1, :32] = 0
    writer.add_tensor("source", source)
    encoded = gguf.quants.quantize(source, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("encoded", encoded, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    expected += [source, gguf.quants.dequantize(encoded, gguf.GGMLQuantizationType.Q8_0)]
    mxfp4 = gguf.GGMLQuantizationType.MXFP4
    encoded = gguf.quants.quantize(source, mxfp4)
    writer.add_tensor("encoded_mxfp4", encoded, raw_dtype=mxfp4)
    expected.append(gguf.quants.dequantize(encoded, mxfp4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (DATA / "quants.f32").write_bytes(b"".join(e.astype("<f4").tobytes() for e in expected))


def read_safetensors(path):
    """Name to f32 array."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", (name, entry)
        begin, end = (8 + size + at for at in entry["data_offsets"])
        tensors[name] = np.frombuffer(raw[begin:end], "<f4").reshape(entry["shape"])
    return tensors


def hugging_face_name(name):
    """Of a llama tensor."""
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{names[parts[2]]}.{parts[3]}"
    return f"{names[parts[0]]}.{parts[1]}"


def compare(path, directory):
    """Every tensor of a llama file against an import of it."""
    reader = gguf.GGUFReader(path)
    ours = read_safetensors(pathlib.Path(directory) / "model.safetensors")
    fields = {key: field.contents() for key, field in reader.fields.items()}
    heads = {"attn_q": fields["llama.attention.head_count"],
             "attn_k": fields["llama.attention.head_count_kv"]}
    elements = 0
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(tuple(reversed([int(n) for n in tensor.shape])))
        for part, count in heads.items():
            if f".{part}." in tensor.name:
                split = values.reshape(count, -1, 2, *values.shape[1:])
                values = split.swapaxes(1, 2).reshape(values.shape)
        mine = ours.pop(hugging_face_name(tensor.name))
        assert mine.shape == values.shape, tensor.name
        assert np.array_equal(mine.view(np.uint32), values.view(np.uint32)), tensor.name
        elements += values.size
    assert not ours, ours.keys()
    print(f"{len(reader.tensors)} tensors, {elements} elements: bit for bit equal")


def check(path):
    """Tensors that atoll encoded, as this package reads them, against atoll's own reading."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    names = [name for name in tensors if f"{name}.f32" in tensors]
    assert names, f"{path} has no tensor with its values beside it"
    for name in names:
        kind = tensors[name].tensor_type
        values = gguf.quants.dequantize(tensors[name].data, kind).astype(np.float32).ravel()
        ours = tensors[f"{name}.f32"].data.astype(np.float32).ravel()
        assert np.array_equal(values.view(np.uint32), ours.view(np.uint32)), name
        print(f"{name}: {values.size} elements: bit for bit equal")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        check(sys.argv[1])
    elif len(sys.argv) == 3:
        compare(*sys.argv[1:])
    else:
        write()
