"""Tiny models and texts, and what transformers computes of them."""

import dataclasses
import random
import re
import sys
import warnings

import torch
import transformers

from reference.checks import ROOT, Failed, expect, run

sys.path.insert(0, str(ROOT / "tools" / "golden"))
import families  # noqa: E402  (beside the fixtures that it writes)

TOKENIZERS = ROOT / "src" / "atoll" / "text" / "testdata"
CONTEXT = 64
PROMPT = "In the beginning God"
# `atoll eval` prints four digits: half of one may be rounding, the other half arithmetic.
LOSS_TOLERANCE = 1e-4
# Logits agree within 1e-5 of the largest (tests/golden); ten times that decides between two tokens.
CLEAR_LEAD = 1e-4
FEWEST = 12  # tokens that a greedy text must have to say anything

warnings.simplefilter("ignore", FutureWarning)  # of the libraries about each other
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)


@dataclasses.dataclass
class Family:
    """One model family: its configuration, and a tokenizer such as its models have."""

    make_config: type
    sizes: dict
    tokenizer: str  # of TOKENIZERS
    bos: str | None
    eos: str


def rotary(**more):
    """Sizes of all families but GPT-2."""
    return {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT, "tie_word_embeddings": True} | more


# Wavelengths of 6, 26, 109 and 453 around an original context of 32, as in families.py: kept,
# blended, divided, divided.
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 300.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
FAMILIES = {
    "llama2": Family(transformers.LlamaConfig,
                     rotary(num_key_value_heads=4, tie_word_embeddings=False),
                     "llama2", "<s>", "</s>"),
    "llama3": Family(transformers.LlamaConfig, rotary(rope_parameters=LLAMA3_ROPE),
                     "llama3", "<|begin_of_text|>", "<|endoftext|>"),
    "mistral": Family(transformers.MistralConfig,
                      rotary(head_dim=16, sliding_window=16, tie_word_embeddings=False),
                      "tekken", "<s>", "</s>"),
    "qwen2": Family(transformers.Qwen2Config, rotary(), "qwen2", None, "<|endoftext|>"),
    "qwen3": Family(transformers.Qwen3Config, rotary(head_dim=16), "qwen2", None,
                    "<|endoftext|>"),
    "mixtral": Family(transformers.MixtralConfig,
                      rotary(num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=False,
                             router_aux_loss_coef=0.0), "llama2", "<s>", "</s>"),
    "gpt_oss": Family(transformers.GptOssConfig,
                      rotary(hidden_size=64, intermediate_size=96, head_dim=16,
                             num_local_experts=4, num_experts_per_tok=2,
                             sliding_window=16, tie_word_embeddings=False,
                             router_aux_loss_coef=0.0,
                             rope_parameters={"rope_type": "yarn", "rope_theta": 300.0,
                                              "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                              "truncate": False,
                                              "original_max_position_embeddings": 16}),
                      "qwen2", None, "<|endoftext|>"),
    "gpt2": Family(transformers.GPT2Config,
                   {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT,
                    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
                   "gpt2", None, "<|endoftext|>"),
}


def config_of(name, tokenizer):
    """A configuration for a tokenizer's vocabulary."""
    family = FAMILIES[name]
    return family.make_config(**family.sizes, vocab_size=len(tokenizer),
                              bos_token_id=tokenizer.bos_token_id,
                              eos_token_id=tokenizer.eos_token_id)


def tokenizer_of(name):
    """The family's tokenizer as transformers holds it."""
    family = FAMILIES[name]
    path = TOKENIZERS / f"{family.tokenizer}.json"
    names = {"eos_token": family.eos} | ({"bos_token": family.bos} if family.bos else {})
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), **names)


def save_random(name, directory, dtype=torch.float32):
    """Has transformers save a random model, with a tokenizer, whose greedy text no tie decides."""
    tokenizer = tokenizer_of(name)
    for seed in range(1, 40):
        model = transformers.AutoModelForCausalLM.from_config(config_of(name, tokenizer))
        families.randomize(model, torch.Generator().manual_seed(seed))
        if len(continuation(model.eval(), tokenizer, FEWEST)[1]) == FEWEST:
            model.to(dtype).save_pretrained(directory)
            tokenizer.save_pretrained(directory)
            return
    raise Failed("no seed gives a greedy text without near ties")


def load(directory):
    """A model and its tokenizer, as any user of transformers loads them; in f32."""
    return families.load(directory), transformers.AutoTokenizer.from_pretrained(directory)


@torch.no_grad()
def continuation(model, tokenizer, count):
    """Token ids of the prompt, and those that follow it greedily until the end of the text, a
    token that leads the next one by too little to say."""
    prompt = tokenizer(PROMPT, return_tensors="pt").input_ids
    made = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt),
                          max_new_tokens=count, do_sample=False,
                          pad_token_id=tokenizer.eos_token_id)
    logits = model(input_ids=made).logits[0, prompt.shape[1] - 1:-1]
    best = logits.topk(2, dim=1).values
    unclear = (best[:, 0] - best[:, 1] < CLEAR_LEAD * logits.abs().max()).nonzero()
    new = made[0, prompt.shape[1]:].tolist()
    new = new[:unclear[0, 0]] if len(unclear) else new
    if tokenizer.eos_token_id in new:
        new = new[:new.index(tokenizer.eos_token_id)]
    return prompt[0].tolist(), new


def greedy_text(model, tokenizer, count=32):
    """The prompt and what follows, as text, and the number of new tokens that are clear."""
    prompt, new = continuation(model, tokenizer, count)
    # The prompt's special tokens are not shown; what a model writes is.
    head = tokenizer.decode(prompt, skip_special_tokens=False)
    whole = tokenizer.decode(prompt + new, skip_special_tokens=False)
    expect(whole.startswith(head), f"{whole!r} does not begin with {head!r}")
    return tokenizer.decode(prompt, skip_special_tokens=True) + whole[len(head):], len(new)


@torch.no_grad()
def loss(model, tokenizer, text, context=CONTEXT):
    """Nats a token over windows that each begin without memory: every token but the first is
    predicted once. What the tokenizer puts before a text is there, as in `atoll eval`."""
    ids = tokenizer(text).input_ids
    if tokenizer.eos_token_id is not None:
        ids = ids + [tokenizer.eos_token_id]
    total = 0.0
    for begin in range(0, len(ids) - 1, context):
        window = torch.tensor(ids[begin:begin + context + 1])
        logits = model(input_ids=window[None, :-1]).logits[0].double()
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return total / (len(ids) - 1)


def atoll_loss(program, model, path):
    """What `atoll eval` prints for a text."""
    out = run(program, "eval", model, "--text", path, "--threads", 1).decode()
    found = re.search(r"loss +([0-9.]+) nats", out)
    expect(found, f"`atoll eval` printed no loss but {out!r}")
    return float(found[1])


def atoll_text(program, model, count):
    """What `atoll generate --greedy` prints, without the line break at its end."""
    out = run(program, "generate", model, "--prompt", PROMPT, "--greedy", "--max-tokens", count,
              "--threads", 1)
    return out.decode().removesuffix("\n")


def same_behaviour(program, ours, model, tokenizer, path):
    """Greedy text and loss of a model that atoll reads from `ours` and transformers holds."""
    text, clear = greedy_text(model, tokenizer)
    expect(clear >= FEWEST, f"only {clear} tokens of {text!r} are clear")
    written = atoll_text(program, ours, clear)
    expect(written == text, f"atoll writes {written!r}, transformers {text!r}")
    theirs, mine = loss(model, tokenizer, path.read_text()), atoll_loss(program, ours, path)
    expect(abs(theirs - mine) < LOSS_TOLERANCE, f"the loss is {mine}, in transformers {theirs}")
    return f"{clear} greedy tokens and the loss, {mine}, the same"


def write_text(path, seed, sentences):
    """Writes sentences that a small model soon learns something of."""
    rng = random.Random(seed)
    who = ["God", "the king", "a servant", "the people", "my brother", "Esther", "no man"]
    does = ["said", "gave", "went up to", "saw", "asked for", "built", "divided", "remembered"]
    what = ["the land", "twelve stones", "an altar", "the waters", "bread", "his name", "7 sheep"]
    when = ["in the beginning", "that day", "at night", "after many years", "again", "in Egypt"]
    lines = [f"{rng.choice(when).capitalize()}, {rng.choice(who)} {rng.choice(does)} "
             f"{rng.choice(what)}{rng.choice([', and it was so', '', '; it was good'])}."
             for _ in range(sentences)]
    # Every character of the prompt and of other texts, whatever the draw.
    lines.append("In the beginning God said: " + " ".join(who + does + what + when) + ".")
    path.write_text("\n".join(line[0].upper() + line[1:] for line in lines) + "\n")


def write_texts(work):
    """A text to train on and one to evaluate on."""
    write_text(work / "train.txt", 1, 800)
    write_text(work / "other.txt", 2, 60)
    return work / "train.txt", work / "other.txt"
