"""gpt-oss as GGUF, read with the gguf package of llama.cpp, and back.

    python tests/oracle/gpt_oss_gguf.py build/release/bin/atoll WORK_DIRECTORY

names    an export has the tensors that the package lists for the architecture, and no others.
weights  each holds what llama.cpp's converter makes of transformers' weights: gate and up apart, (out, in).
mxfp4    --gguf MXFP4_MOE: the package decodes the experts to what atoll reads back.
back     an import has transformers' weights and loss again.
"""

import json

import gguf
import numpy
import torch

from reference import tiny
from reference.checks import Checks, arguments, expect, run


def read(path):
    """The tensors of a file as f32, and its settings."""
    reader = gguf.GGUFReader(path)
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    return tensors, {name: field.contents() for name, field in reader.fields.items()}


def expected(model):
    """What llama.cpp's converter writes of a model of transformers."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        parts = name.split(".")
        at = f"blk.{parts[2]}." if parts[1] == "layers" else ""
        rest = ".".join(parts[3:]) if at else name
        array = tensor.float().numpy()
        plain = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                 "lm_head.weight": "output.weight", "input_layernorm.weight": "attn_norm.weight",
                 "post_attention_layernorm.weight": "post_attention_norm.weight",
                 "self_attn.sinks": "attn_sinks.weight"}
        if rest in plain:
            tensors[at + plain[rest]] = array
        elif rest.startswith("self_attn."):
            kind = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
            tensors[f"{at}{kind[parts[4]]}.{parts[5]}"] = array
        elif rest.startswith("mlp.router."):
            tensors[f"{at}ffn_gate_inp.{parts[5]}"] = array
        else:
            what = "bias" if rest.endswith("_bias") else "weight"
            turned = array if what == "bias" else array.transpose(0, 2, 1)
            if "gate_up" in rest:
                tensors[f"{at}ffn_gate_exps.{what}"] = turned[:, 0::2]
                tensors[f"{at}ffn_up_exps.{what}"] = turned[:, 1::2]
            else:
                tensors[f"{at}ffn_down_exps.{what}"] = turned
    return tensors


def export(program, base, path, *more):
    """Of a directory."""
    if not path.exists():
        run(program, "export", base, "--out", path, *more)
    return read(path)


def names(program, work, base):
    """Those of the package."""
    tensors, settings = export(program, base, work / "oss.gguf", "--gguf", "F32")
    kinds = gguf.MODEL_TENSORS[gguf.MODEL_ARCH.GPT_OSS]
    known = {gguf.TENSOR_NAMES[kind] for kind in kinds}
    for name in tensors:
        stem = name.rsplit(".", 1)[0]
        parts = stem.split(".")
        if parts[0] == "blk":
            stem = f"blk.{{bid}}.{parts[2]}"
        expect(stem in known, f"{name} is none of the package's")
    want = {"general.architecture": "gpt-oss", "gpt-oss.attention.sliding_window": 16,
            "gpt-oss.expert_count": 4, "gpt-oss.expert_used_count": 2, "gpt-oss.rope.scaling.type": "yarn",
            "gpt-oss.rope.scaling.original_context_length": 16, "gpt-oss.rope.scaling.truncate": False}
    for key, value in want.items():
        expect(settings.get(key) == value, f"{key} is {settings.get(key)}, not {value}")
    return f"{len(tensors)} tensors"


def weights(program, work, base):
    """Of every tensor."""
    tensors, _ = export(program, base, work / "oss.gguf", "--gguf", "F32")
    theirs = expected(tiny.load(base)[0])
    expect(tensors.keys() == theirs.keys(), f"others: {tensors.keys() ^ theirs.keys()}")
    for name, array in theirs.items():
        ours = tensors[name].reshape(array.shape)
        expect(numpy.array_equal(ours, array), f"{name} differs")
    return f"{len(theirs)} tensors the same"


def mxfp4(program, work, base, texts):
    """Experts in 4 bits."""
    path, out = work / "oss-mxfp4.gguf", work / "oss-mxfp4"
    tensors, _ = export(program, base, path, "--gguf", "MXFP4_MOE")
    types = {t.name: t.tensor_type for t in gguf.GGUFReader(path).tensors}
    expect(all(types[name] == gguf.GGMLQuantizationType.MXFP4 for name in types
               if name.endswith("_exps.weight")), "experts are of another type")
    run(program, "import", path, "--out", out)
    theirs = expected(tiny.load(out)[0])
    for name, array in theirs.items():
        if name.endswith("_exps.weight"):
            expect(numpy.array_equal(tensors[name].reshape(array.shape), array), f"{name} differs")
    stored = work / "oss-stored"
    run(program, "import", path, "--out", stored, "--dtype", "stored")
    wide, kept = (tiny.atoll_loss(program, d, texts[1]) for d in (out, stored))
    expect(abs(wide - kept) < tiny.LOSS_TOLERANCE, f"the loss is {kept} stored, and {wide} widened")
    return "the same numbers"


def back(program, work, base, texts):
    """What a directory has that was a file."""
    out = work / "oss-back"
    export(program, base, work / "oss.gguf", "--gguf", "F32")
    run(program, "import", work / "oss.gguf", "--out", out)
    model, tokenizer = tiny.load(base)
    again = tiny.load(out)[0]
    for name, tensor in model.state_dict().items():
        expect(torch.equal(tensor, again.state_dict()[name]), f"{name} differs")
    scaling = json.loads((out / "config.json").read_text())
    expect("\"truncate\": false" in json.dumps(scaling), "the bounds of YaRN are rounded")
    theirs, ours = tiny.loss(again, tokenizer, texts[1].read_text()), tiny.atoll_loss(program, out, texts[1])
    expect(abs(theirs - ours) < tiny.LOSS_TOLERANCE, f"the loss is {ours}, in transformers {theirs}")
    return f"the loss, {ours}, the same"


def main():
    """See above."""
    program, work = arguments("gpt_oss_gguf")
    checks = Checks("gpt_oss_gguf")
    checks.require("gguf")
    texts = tiny.write_texts(work)
    base = work / "gpt_oss"
    tiny.save_random("gpt_oss", base)
    for name, check in {"names": names, "weights": weights}.items():
        checks.run(name, check, program, work, base)
    for name, check in {"mxfp4": mxfp4, "back": back}.items():
        checks.run(name, check, program, work, base, texts)
    checks.finish()


if __name__ == "__main__":
    main()
