"""The models that ranks are measured with, and the corpus, as files that atoll and Hugging
Face's transformers both read. Needs nothing but Python and atoll."""

import dataclasses
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model and the part of a step's batch that each rank has: one micro-batch."""
    name: str
    config: dict
    sequences: int  # of a micro-batch, of which a rank has one a step
    context: int
    micro_batches: int = 1  # or so many

    @property
    def tokens(self):
        return self.sequences * self.context * self.micro_batches


DEMO = Shape("demo", {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048,
    "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 32, "intermediate_size": 704, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
    "initializer_range": 0.02, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
    "bos_token_id": None, "eos_token_id": 0}, sequences=2, context=256)

GPT2 = Shape("gpt2", {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768,
    "n_layer": 12, "n_head": 12, "n_inner": 3072, "n_positions": 1024,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
    "tie_word_embeddings": True, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    "bos_token_id": 0, "eos_token_id": 0}, sequences=4, context=256)

# Of GPT-2's size, with a head of its own, as PyTorch's tensor parallel cannot share a tied one.
LLAMA = Shape("llama", {
    **DEMO.config, "vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 2048,
    "tie_word_embeddings": False}, sequences=4, context=256)

# One long sequence: most of the work is attention.
LONG = Shape("long", {
    **DEMO.config, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "max_position_embeddings": 8192}, sequences=1, context=8192)

# The same in micro-batches of one sequence, as a pipeline takes them.
PIPE = dataclasses.replace(LLAMA, name="pipe", sequences=1, micro_batches=8)

SHAPES = {shape.name: shape for shape in (DEMO, GPT2, LLAMA, LONG, PIPE)}


def write_config(shape, directory):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.json"
    path.write_text(json.dumps(shape.config, indent=2))
    return path


def make_corpus(atoll, text, directory):
    """Tokens of `text` with a vocabulary of 2,048, which both models have at least."""
    if not (directory / "corpus.json").exists():
        subprocess.run([atoll, "tokenize", text, "--out", directory, "--vocab-size", "2048"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return directory
