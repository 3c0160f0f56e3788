"""Loads what atoll exports as GGUF in llama.cpp and compares the greedy text of both.

    python3 -m venv venv && venv/bin/pip install numpy llama-cpp-python
    venv/bin/python tests/oracle/gguf_llama_cpp.py build/release/bin/atoll WORK_DIRECTORY

For each family a tiny random model is written by hand (config.json, model.safetensors and a
tokenizer.json of all bytes), exported as f32, f16 and q8_0, and imported again. atoll continues a
prompt with what it imported; llama.cpp is given the same tokens one after the other, and must
prefer atoll's choice at each. In f32 that is exact up to ties of 1e-4 of the range of the logits;
llama.cpp rounds activations to f16 beside f16 weights, and to 8 bits beside q8_0, so that there
choices within 2% and 5% of the range count as equal.

With a GGUF file as third argument, compares the text that both make of that file instead, and the
token ids of a few thousand strings when the `tokenizers` package is there.
"""

import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import numpy as np

from reference.checks import Checks

WIDTH, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, LAYERS, VOCAB = 64, 4, 2, 16, 96, 3, 260
PROMPT = "the cat"
TOLERANCE = {"f32": 1e-4, "f16": 0.02, "q8_0": 0.05}


def byte_spellings():
    """How byte-level BPE spells each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(others)) for b in range(256)]


def write_tokenizer(directory):
    """All bytes, two merges, one special token; ids up to VOCAB stay unused."""
    vocab = {text: i for i, text in enumerate(byte_spellings())} | {"th": 256, "the": 257}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    end = {"id": 258, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": False, "vocab": vocab, "merges": [["t", "h"], ["th", "e"]]}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
        "normalizer": None, "pre_tokenizer": level, "post_processor": level, "decoder": level,
        "model": model}))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))


def write_safetensors(path, tensors):
    """f32 tensors by name."""
    header, at = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape,
                        "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


class Weights:
    """Random tensors by name. Matrices keep the variance of what they multiply, doubled, so that
    attention prefers some positions to others and a permuted row is seen."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tensors = {}

    def normal(self, name, *shape, scale):
        self.tensors[name] = (self.rng.standard_normal(shape) * scale).astype("<f4")

    def linear(self, name, out, inner, bias=False, transposed=False):
        shape = (inner, out) if transposed else (out, inner)
        self.normal(f"{name}.weight", *shape, scale=1.5 / inner**0.5)
        if bias:
            self.normal(f"{name}.bias", out, scale=0.3)

    def norm(self, name, width, bias=False):
        self.normal(f"{name}.weight", width, scale=0.2)
        self.tensors[f"{name}.weight"] += 1
        if bias:
            self.normal(f"{name}.bias", width, scale=0.2)

    def table(self, name):
        """Token embedding or head; only printable bytes are ever preferred, so that the text shows
        the tokens."""
        self.normal(f"{name}.weight", VOCAB, WIDTH, scale=1)
        printable = np.zeros((VOCAB, 1), "<f4")
        printable[32:127] = 1
        self.tensors[f"{name}.weight"] *= printable * 0.97 + 0.03


def rotary(weights, config):
    """The tensors of Llama, Mistral and Qwen."""
    family = config["model_type"]
    weights.table("model.embed_tokens")
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        bias = config.get("attention_bias", False)
        weights.norm(at + "input_layernorm", WIDTH)
        weights.linear(at + "self_attn.q_proj", HEADS * HEAD_DIM, WIDTH, bias or family == "qwen2")
        for part in ("k_proj", "v_proj"):
            weights.linear(at + "self_attn." + part, KV_HEADS * HEAD_DIM, WIDTH,
                           bias or family == "qwen2")
        weights.linear(at + "self_attn.o_proj", WIDTH, HEADS * HEAD_DIM, bias)
        if family == "qwen3":
            weights.norm(at + "self_attn.q_norm", HEAD_DIM)
            weights.norm(at + "self_attn.k_norm", HEAD_DIM)
        weights.norm(at + "post_attention_layernorm", WIDTH)
        for part in ("gate_proj", "up_proj"):
            weights.linear(at + "mlp." + part, HIDDEN, WIDTH, config.get("mlp_bias", False))
        weights.linear(at + "mlp.down_proj", WIDTH, HIDDEN, config.get("mlp_bias", False))
    weights.norm("model.norm", WIDTH)
    if not config["tie_word_embeddings"]:
        weights.table("lm_head")


def gpt2(weights, _config):
    """The tensors of GPT-2."""
    weights.table("transformer.wte")
    weights.normal("transformer.wpe.weight", 64, WIDTH, scale=0.5)
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        weights.norm(at + "ln_1", WIDTH, bias=True)
        weights.linear(at + "attn.c_attn", 3 * WIDTH, WIDTH, True, True)
        weights.linear(at + "attn.c_proj", WIDTH, WIDTH, True, True)
        weights.norm(at + "ln_2", WIDTH, bias=True)
        weights.linear(at + "mlp.c_fc", HIDDEN, WIDTH, True, True)
        weights.linear(at + "mlp.c_proj", WIDTH, HIDDEN, True, True)
    weights.norm("transformer.ln_f", WIDTH, bias=True)


def models():
    """Name, config.json and maker of tensors of each."""
    shared = {"vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": HIDDEN,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "hidden_act": "silu",
              "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 500.0,
              "tie_word_embeddings": False}
    yield "llama", shared | {"model_type": "llama"}, rotary
    yield "llama-biased", shared | {"model_type": "llama", "attention_bias": True,
                                    "mlp_bias": True}, rotary
    yield "llama-3.1", shared | {
        "model_type": "llama", "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}, rotary
    yield "llama-linear", shared | {
        "model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, rotary
    yield "mistral", shared | {"model_type": "mistral", "sliding_window": 32,
                               "head_dim": HEAD_DIM}, rotary
    yield "qwen2", shared | {"model_type": "qwen2", "use_sliding_window": False}, rotary
    yield "qwen3", shared | {"model_type": "qwen3", "head_dim": HEAD_DIM,
                             "use_sliding_window": False, "attention_bias": False}, rotary
    yield "gpt2", {"model_type": "gpt2", "vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": LAYERS,
                   "n_head": HEADS, "n_inner": HIDDEN, "n_positions": 64,
                   "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                   "tie_word_embeddings": True}, gpt2


def run(*command):
    """Standard output of a program that must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexited with {done.returncode}: "
                 f"{done.stderr.decode(errors='replace')}")
    return done.stdout


def load(path, context):
    """Keys and values in f32, and the logits of every position."""
    import llama_cpp

    return llama_cpp.Llama(str(path), n_ctx=context, n_threads=1, logits_all=True, verbose=False,
                           type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
                           flash_attn=False)


def compare(program, gguf, directory, prompt, new_tokens, tolerance, ids_of):
    """How many of atoll's greedy tokens llama.cpp prefers too, exactly; exits when it prefers
    another clearly."""
    text = run(program, "generate", directory, "--prompt", prompt, "--greedy", "--no-prompt",
               "--max-tokens", new_tokens)
    llm = load(gguf, 64 + 2 * new_tokens)
    begin = llm.tokenize(prompt.encode(), add_bos=True, special=False)
    # The program ends with a line break of its own.
    tokens = begin + ids_of(llm, text[:-1])
    exact = 0
    llm.eval(tokens)
    for at in range(len(begin), len(tokens)):
        logits = llm.scores[at - 1]
        best = int(np.argmax(logits))
        exact += best == tokens[at]
        lead = logits[best] - logits[tokens[at]]
        if lead > tolerance * (logits.max() - logits.min()):
            sys.exit(f"{gguf}: at token {at - len(begin)} of {text!r} llama.cpp prefers {best} to "
                     f"{tokens[at]} by {lead} of {logits.max() - logits.min()}")
    count = len(tokens) - len(begin)
    if count < new_tokens // 2:
        sys.exit(f"{directory}: only {count} tokens in {text!r}")
    return f"{exact} of {count} tokens the same"


def strings(count):
    """Awkward ones, always the same."""
    rng = random.Random(5)
    words = ["hello", " World", "don't", "I'LL", "naïve", "日本語", "привет", "مرحبا", "👍", "👨‍👩‍👧", "  ",
             "   ", "\n", "\n\n", "\t", "123", "3.14", "1234567", "def f(x):", "    ", "</div>",
             "{", "==", "'s", "\"", "...", "—", "€", "e\u0301", "\u00a0", "\u200b", "\r\n", "_",
             "0x1F", "½", "Ⅷ", "𝒳", " the", "ing", ".", ",", "!"]
    for _ in range(count):
        yield "".join(rng.choice(words) + rng.choice(["", " "]) for _ in range(rng.randint(1, 12)))


def compare_ids(gguf, directory):
    """Token ids of the imported tokenizer.json against llama.cpp's."""
    try:
        import tokenizers
    except ImportError:
        return "ids not compared: there is no `tokenizers` package"
    import llama_cpp

    llm = llama_cpp.Llama(str(gguf), vocab_only=True, verbose=False)
    ours = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in strings(3000):
        theirs = llm.tokenize(text.encode(), add_bos=False, special=True)
        if ours.encode(text, add_special_tokens=False).ids != theirs:
            sys.exit(f"{gguf}: {text!r} has other ids in llama.cpp")
    return "ids of 3000 strings the same"


def exported(program, work, name, dtype):
    """A model as GGUF and back."""
    gguf, back = work / f"{name}-{dtype}.gguf", work / f"{name}-{dtype}"
    run(program, "export", work / name, "--out", gguf, "--format", "gguf", "--dtype", dtype)
    run(program, "import", gguf, "--out", back)
    # Byte b is token b, and longer tokens are never preferred.
    return compare(program, gguf, back, PROMPT, 20, TOLERANCE[dtype], lambda _, text: list(text))


def main():
    """See above."""
    program = pathlib.Path(sys.argv[1]).resolve()
    work = pathlib.Path(sys.argv[2]) / "gguf-llama-cpp"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if len(sys.argv) > 3:
        run(program, "import", sys.argv[3], "--out", work / "model")
        print(compare_ids(sys.argv[3], work / "model"))
        print(compare(program, sys.argv[3], work / "model", "The capital of France is", 32, 0.05,
                      lambda llm, text: llm.tokenize(text, add_bos=False, special=True)))
        return
    checks = Checks("gguf_llama_cpp")
    checks.require("llama_cpp")
    for number, (name, config, make) in enumerate(models()):
        directory = work / name
        directory.mkdir()
        weights = Weights(number)
        make(weights, config)
        write_safetensors(directory / "model.safetensors", weights.tensors)
        (directory / "config.json").write_text(json.dumps(config, indent=2))
        write_tokenizer(directory)
        for dtype in TOLERANCE:
            checks.run(f"{name} {dtype}", exported, program, work, name, dtype)
    checks.finish()


if __name__ == "__main__":
    main()
