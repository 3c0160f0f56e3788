"""The models whose training step is compared, and how atoll is told of them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    family: str
    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    batch: int
    context: int

    @property
    def tokens(self):
        return self.batch * self.context

    def settings(self):
        """Of `atoll bench step recipes/gpt2-124m.toml` or recipes/kjv-demo.toml."""
        recipe = "gpt2-124m" if self.family == "gpt2" else "kjv-demo"
        sizes = {"model.hidden_size": self.width, "model.num_hidden_layers": self.layers,
                 "model.num_attention_heads": self.heads,
                 "model.num_key_value_heads": self.kv_heads,
                 "model.intermediate_size": self.inner, "data.vocab_size": self.vocab,
                 "model.max_position_embeddings": self.context,
                 "model.tie_word_embeddings": "true",
                 "train.batch_size": self.batch, "train.micro_batch": self.batch,
                 "train.context": self.context, "train.recompute": "none",
                 "data.text": "README.md"}
        return [f"recipes/{recipe}.toml"] + [f"--{key}={value}" for key, value in sizes.items()]


def gpt2(batch, context):
    return Shape("gpt2", 50257, 768, 12, 12, 12, 3072, batch, context)


SHAPES = {
    "gpt2-b4-t256": gpt2(4, 256),
    "gpt2-b1-t1024": gpt2(1, 1024),
    "llama-30m-t512": Shape("llama", 32000, 384, 10, 6, 6, 1024, 2, 512),
    "demo": Shape("llama", 2048, 256, 6, 8, 4, 704, 2, 256),
}
