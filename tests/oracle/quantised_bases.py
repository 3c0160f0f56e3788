"""LoRA beside quantised bases: the losses of 50 steps, beside PEFT's.

    python tests/oracle/quantised_bases.py build/release/bin/atoll WORK_DIRECTORY

transformers makes a small random model. bitsandbytes quantises it and saves it; for GPTQ and AWQ,
whose libraries need a GPU, this script rounds and packs the weights by the published formats; for
GGUF's types atoll exports the model and imports it with --dtype stored. Then
`atoll train` and PEFT train the same adapter on the same batches (docs/data-order.md), and the loss
of each step is compared with those of two models:

own    PEFT beside the layers of bitsandbytes, which widen in each product.
plain  PEFT beside an ordinary model of the widened weights: those of bitsandbytes' own functions
       that dequantise, of the formula of GPTQ and AWQ, or of the `gguf` package. In f64, so that it
       has no rounding.

The bound. All losses are of the same weights and differ by the rounding of f32. `plain` is trained
in f32 too; how far that goes from f64 is what the rounding of 50 steps comes to in one order of
sums. atoll and bitsandbytes add in other orders, which do not round alike, and may be MARGIN times
as far away. On a CPU bitsandbytes' int8 layers multiply with the widened weights as well, so that
the bound is theirs too; on a GPU they would round activations to 8 bits.
"""

import dataclasses
import json
import math
import shutil
import sys

import bitsandbytes
import gguf
import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

from reference import tiny
from reference.checks import ROOT, Checks, arguments, expect, run

sys.path.insert(0, str(ROOT / "tools" / "golden"))
import data_order  # noqa: E402  (written from docs/data-order.md alone)

STEPS, BATCH, CONTEXT, SEED = 50, 8, 32, 1
RANK, ALPHA, RATE, DECAY, CLIP = 4, 8, 5e-3, 0.1, 1.0
# With 1e-8 a gradient near 0, whose sign is a matter of rounding, would decide a whole step of its
# element: two orders of sums then go 1e-3 apart. Gradients are clipped to a norm of 1, which is
# about 1e-2 an element, so this changes no other step by much.
BETAS, EPS = (0.9, 0.95), 1e-4
# The largest of 50 distances between two such walks, over that between another two: of one size,
# and by no more than an order of magnitude apart. A wrong code of a single weight is 1e-3 or more.
MARGIN = 10
# One f32 sum of a batch: 256 terms of about 4, half a unit of the last place each.
FLOOR = 256 * 2**-24 * 4
LEAST_FALL = 0.3  # of the loss, or the adapter has learnt nothing and all agree on nothing
FAMILIES = ("llama3", "qwen2", "gpt2")
GROUP = 16
USUAL_WIDTH = tiny.rotary()["hidden_size"]
# Rows of 256, which GGUF's K types come in; of a family whose rows llama.cpp does not reorder.
tiny.FAMILIES["qwen2-256"] = dataclasses.replace(
    tiny.FAMILIES["qwen2"], sizes=tiny.rotary(hidden_size=256, intermediate_size=256))
GGUF_TYPES = ("q8_0", "q6_k", "q4_k_m", "q3_k_m")
GGUF_NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
              "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
              "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def save_base(name, directory):
    """A random model, and the tokens of a text to train on as nanoGPT keeps them."""
    tiny.save_random(name, directory)
    model, tokenizer = tiny.load(directory)
    width = model.config.hidden_size
    if width > USUAL_WIDTH:
        # Random matrices of one variance make a wide model's logits so large that rounding decides.
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter *= (USUAL_WIDTH / width) ** 0.5
        model.save_pretrained(directory)
    tiny.write_text(directory / "train.txt", 3, 400)
    ids = tokenizer((directory / "train.txt").read_text(), add_special_tokens=False).input_ids
    np.array(ids, np.uint16).tofile(directory / "train.bin")


def batches(ids):
    """Inputs and targets, (STEPS, BATCH, CONTEXT) each."""
    windows = []
    for index in range(STEPS * BATCH):
        first = data_order.sample(SEED, len(ids), CONTEXT, index)[2]
        windows.append(ids[first:first + CONTEXT + 1])
    tokens = torch.tensor(windows).view(STEPS, BATCH, CONTEXT + 1)
    return tokens[:, :, :-1], tokens[:, :, 1:]


def train(program, base, model, directory, *more, decay=DECAY):
    """`atoll train`, and the losses of its steps."""
    run(program, "train", f"--run.dir={directory}", f"--model.from={model}",
        f"--data.text={base / 'train.bin'}", f"--data.tokenizer={base / 'tokenizer.json'}",
        "--data.held_out=0", f"--run.seed={SEED}", f"--train.steps={STEPS}",
        f"--train.batch_size={BATCH}", f"--train.micro_batch={BATCH // 2}",
        f"--train.context={CONTEXT}", f"--optim.lr={RATE}", "--optim.schedule=constant",
        f"--optim.weight_decay={decay}", f"--optim.clip={CLIP}", f"--optim.eps={EPS}",
        f"--lora.rank={RANK}", f"--lora.alpha={ALPHA}", "--log.every=1", "--log.tensorboard=false",
        "--device.threads=1", *more)
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row and "step" in row]


def write_first_adapter(program, base, model, directory):
    """The adapter that a run of SEED begins with, as PEFT keeps it. A run writes no checkpoint
    before its first step. That step finds B = 0, so the gradient of A is 0 and, without decay, A is
    what it was; B is put back to 0."""
    started = directory.with_name(directory.name + "-start")
    train(program, base, model, started, "--train.stop_after=1", decay=0)
    shutil.copytree(max((started / "checkpoints").glob("step-*")), directory)
    path = directory / "adapter_model.safetensors"
    tensors = load_file(path)
    expect(any(name.endswith("lora_B.weight") and tensor.abs().max() > 0
               for name, tensor in tensors.items()), "the first step changed no B")
    save_file({name: torch.zeros_like(t) if name.endswith("lora_B.weight") else t
               for name, t in tensors.items()}, path)


def reference_losses(model, adapter, tokens, targets):
    """The losses of PEFT's adapter beside a model, before each step."""
    adapted = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    dtype = next(p.dtype for n, p in model.named_parameters() if n.endswith("norm.weight")
                 or n.endswith("ln_f.weight"))
    trained = []
    for name, parameter in adapted.named_parameters():
        if parameter.requires_grad:
            expect("lora_" in name, f"{name} is trained")
            parameter.data = parameter.data.to(dtype)
            trained.append(parameter)
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    losses = []
    for inputs, wanted in zip(tokens, targets):
        optimizer.zero_grad()
        logits = adapted(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain_model(base, widened, dtype):
    """The model with some weights replaced, by their names in a model's state; (out, in) each."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    modules = dict(model.named_modules())
    with torch.no_grad():
        for name, weight in widened.items():
            module = modules[name]
            transposed = isinstance(module, transformers.pytorch_utils.Conv1D)
            module.weight.copy_(weight.T if transposed else weight)
    return model.to(dtype).train()


def distance(a, b):
    """The largest of the steps'."""
    expect(len(a) == len(b) == STEPS, f"{len(a)} and {len(b)} steps")
    expect(all(map(math.isfinite, a + b)), "a loss is not finite")
    return max(abs(x - y) for x, y in zip(a, b))


def compare(program, base, model, widened, own=None):
    """All of the above for one directory."""
    ids = np.fromfile(base / "train.bin", np.uint16).tolist()
    tokens, targets = batches(ids)
    adapter = model.with_name(model.name + "-adapter")
    write_first_adapter(program, base, model, adapter)
    ours = train(program, base, model, model.with_name(model.name + "-run"))
    exact, rounded = (reference_losses(plain_model(base, widened, dtype), adapter, tokens, targets)
                      for dtype in (torch.float64, torch.float32))
    bound = MARGIN * distance(exact, rounded) + FLOOR
    expect(ours[0] - ours[-1] > LEAST_FALL, f"the loss went from {ours[0]} to {ours[-1]} only")
    far = distance(ours, exact)
    expect(far <= bound, f"losses are up to {far:.1e} from those of the widened weights, and "
           f"rounding comes to {bound:.1e}: {ours} instead of {exact}")
    said = f"{ours[0]:.4f} to {ours[-1]:.4f}, within {far:.1e} of f64 (bound {bound:.1e})"
    # That the weights are not those of the base: a reader of other weights would be seen.
    other = reference_losses(plain_model(base, {}, torch.float32), adapter, tokens, targets)
    expect(distance(ours, other) > 3 * bound, "quantising the base changes no loss clearly")
    if own is None:
        return said
    theirs = reference_losses(own(), adapter, tokens, targets)
    far = distance(ours, theirs)
    expect(far <= bound, f"losses are up to {far:.1e} from those of bitsandbytes' layers, and "
           f"rounding comes to {bound:.1e}: {ours} instead of {theirs}")
    return f"{said}, within {far:.1e} of bitsandbytes' layers"


def quantised_by_bitsandbytes(program, work, family, settings):
    """A directory that transformers saves with bitsandbytes."""
    base, kind = work / family, settings["kind"]
    directory = work / f"{family}-{kind}"
    config = transformers.BitsAndBytesConfig(**settings["config"])
    options = {"dtype": torch.float32, "device_map": "cpu"}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        base, quantization_config=config, **options)
    model.save_pretrained(directory)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(directory)

    def own():
        return transformers.AutoModelForCausalLM.from_pretrained(directory, **options).train()

    widened = {}
    for name, module in own().named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            widened[name] = bitsandbytes.functional.dequantize_4bit(
                module.weight.data, module.weight.quant_state)
        elif isinstance(module, bitsandbytes.nn.Linear8bitLt):
            widened[name] = bitsandbytes.functional.int8_vectorwise_dequant(
                module.weight.data, module.weight.SCB)
    expect(widened, "bitsandbytes quantised no layer")
    return compare(program, base, directory, widened, own)


def rounded_to_groups(weight, bits, symmetric):
    """Codes and zeros (in, out), (groups, out), and scales in f16, of a weight (out, in)."""
    groups = weight.T.reshape(-1, GROUP, weight.shape[0])
    most = 2**bits - 1
    if symmetric:
        scales = (2 * groups.abs().amax(1) / most).half()
        zeros = torch.full_like(scales, 2 ** (bits - 1), dtype=torch.float32)
    else:
        low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
        scales = ((high - low) / most).half()
        zeros = (-low / scales.float()).round().clamp(0, most)
    codes = (groups / scales.float()[:, None] + zeros[:, None]).round().clamp(0, most)
    return codes.reshape(-1, weight.shape[0]).long(), zeros.long(), scales


def words(values, bits, order):
    """Neighbours of the last dimension in words of 32 bits; `order` says what each place holds."""
    split = values.unflatten(-1, (-1, 32 // bits))
    return signed(sum(split[..., column] << (bits * place) for place, column in enumerate(order)))


def signed(word):
    """Words of 32 bits as files have them."""
    return ((word + 2**31) % 2**32 - 2**31).to(torch.int32)


def unpacked(packed, bits, order):
    """The reverse."""
    wide = packed.long() % 2**32
    places = [(wide >> (bits * place)) & (2**bits - 1) for place in range(32 // bits)]
    columns = sorted(range(len(order)), key=lambda place: order[place])
    return torch.stack([places[place] for place in columns], -1).flatten(-2)


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def affine_tensors(weight, settings, generator):
    """What a file holds of one weight, and the numbers that this means, (out, in)."""
    bits, method = settings["bits"], settings["quant_method"]
    order = AWQ_ORDER if method == "awq" else list(range(32 // bits))
    # With act-order the inputs of a group are anywhere.
    inputs = torch.arange(weight.shape[1])
    if settings.get("desc_act"):
        inputs = torch.randperm(weight.shape[1], generator=generator)
    codes, zeros, scales = rounded_to_groups(weight[:, inputs], bits, settings.get("sym", False))
    back = inputs.argsort()
    codes, group_of = codes[back], back // GROUP
    if method == "awq":
        qweight = words(codes, bits, order)
        qzeros = words(zeros, bits, order)
        files = {"qweight": qweight, "qzeros": qzeros, "scales": scales}
        again, zero = unpacked(qweight, bits, order), unpacked(qzeros, bits, order)
    else:
        # Version 1 has zeros less one. GPTQModel, which writes and reads it, subtracts and adds the
        # ones in whole words: a zero of 0 borrows from its neighbour.
        ones = 0 if settings["checkpoint_format"] == "gptq_v2" else (2**32 - 1) // (2**bits - 1)
        qweight = words(codes.T, bits, order).T.contiguous()
        qzeros = signed(words(zeros, bits, order).long() - ones)
        files = {"qweight": qweight, "qzeros": qzeros, "scales": scales,
                 "g_idx": group_of.to(torch.int32)}
        again = unpacked(qweight.T, bits, order).T
        zero = unpacked(signed(qzeros.long() + ones), bits, order)
    values = scales[group_of] * (again - zero[group_of]).half()
    return files, values.T.float()


def quantised_by_formula(program, work, family, name, settings):
    """A directory of GPTQ or AWQ."""
    base, directory = work / family, work / f"{family}-{name}"
    shutil.copytree(base, directory)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    generator = torch.Generator().manual_seed(5)
    tensors, widened = load_file(base / "model.safetensors"), {}
    for module_name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or module_name == "lm_head":
            continue
        files, widened[module_name] = affine_tensors(module.weight.data, settings, generator)
        del tensors[module_name + ".weight"]
        tensors |= {f"{module_name}.{part}": tensor for part, tensor in files.items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    path = directory / "config.json"
    config = json.loads(path.read_text()) | {"quantization_config": settings}
    path.write_text(json.dumps(config, indent=2))
    return compare(program, base, directory, widened)


def quantised_as_gguf(program, work, family, dtype):
    """A directory that atoll imports in the types of a GGUF file."""
    base, file = work / family, work / f"{family}-{dtype}.gguf"
    directory = work / f"{family}-{dtype}"
    run(program, "export", base, "--out", file, "--format", "gguf", "--dtype", dtype)
    run(program, "import", file, "--out", directory, "--dtype", "stored")
    widened = {}
    for tensor in gguf.GGUFReader(file).tensors:
        if not tensor.name.endswith(".weight") or "norm" in tensor.name:
            continue
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        if tensor.name == "token_embd.weight":
            widened["model.embed_tokens"] = values
        else:
            _, block, part, _ = tensor.name.split(".")
            widened[f"model.layers.{block}.{GGUF_NAMES[part]}"] = values
    return compare(program, base, directory, widened)


NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.float32}
BITSANDBYTES = (
    {"kind": "nf4", "config": NF4},
    {"kind": "nf4-nested", "config": NF4 | {"bnb_4bit_use_double_quant": True}},
    {"kind": "fp4", "config": NF4 | {"bnb_4bit_quant_type": "fp4"}},
    {"kind": "int8", "config": {"load_in_8bit": True}},
)
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False,
        "checkpoint_format": "gptq"}
FORMULAS = {
    "gptq": GPTQ,
    "gptq-act": GPTQ | {"sym": False, "desc_act": True},
    "gptq-v2": GPTQ | {"sym": False, "checkpoint_format": "gptq_v2"},
    "gptq-8": GPTQ | {"bits": 8},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
            "version": "gemm"},
}


def main():
    """See above."""
    program, work = arguments("quantised_bases")
    checks = Checks("quantised_bases")
    for family in FAMILIES:
        save_base(family, work / family)
        for settings in BITSANDBYTES:
            checks.run(f"{family} {settings['kind']}", quantised_by_bitsandbytes, program, work,
                       family, settings)
        # transformers does not quantise GPT-2's transposed layers by these.
        for name, settings in FORMULAS.items() if family != "gpt2" else ():
            checks.run(f"{family} {name}", quantised_by_formula, program, work, family, name,
                       settings)
    save_base("qwen2-256", work / "qwen2-256")
    for dtype in GGUF_TYPES:
        checks.run(f"qwen2 gguf {dtype}", quantised_as_gguf, program, work, "qwen2-256", dtype)
    checks.finish()


if __name__ == "__main__":
    main()
