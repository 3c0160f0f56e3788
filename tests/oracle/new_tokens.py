"""New special tokens of a pretrained tokenizer, and their rows, as transformers and PEFT read them.

    python tests/oracle/new_tokens.py build/release/bin/atoll WORK_DIRECTORY

tokens   data.special_tokens: the checkpoint's tokenizer gives the ids that add_special_tokens of
         transformers gives.
rows     new rows begin as the mean of the old ones, which is what resize_token_embeddings draws
         around.
full     all weights are trained: transformers has the same loss.
adapter  beside an adapter, tied and untied: PEFT loads it on the resized base model, and has the
         same loss, also after `atoll export --merge`.
"""

import json

import peft
import torch
import transformers

from reference import tiny
from reference.checks import Checks, arguments, expect, run

TOKENS = ["<|im_start|>", "<|im_end|>"]
MODULES = {"llama2": "embed_tokens,lm_head", "llama3": "embed_tokens"}  # untied, tied


TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def conversations(path):
    """A text's lines as answers; and the template that writes the new tokens."""
    made, template = path.with_suffix(".jsonl"), path.with_suffix(".jinja")
    made.write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": line[:9]},
                                 {"role": "assistant", "content": line}]}) + "\n"
        for line in path.read_text().splitlines()))
    template.write_text(TEMPLATE)
    return [f"--data.text={made}", f"--data.chat_template={template}"]


def train(program, base, directory, text, *settings, rate="2e-2", steps=8):
    """A short run on conversations with the new tokens; its last checkpoint."""
    run(program, "train", f"--run.dir={directory}", f"--model.from={base}", *conversations(text),
        f"--data.special_tokens={','.join(TOKENS)}", f"--train.steps={steps}",
        f"--train.context={tiny.CONTEXT}", "--train.batch_size=8", f"--optim.lr={rate}",
        "--eval.max_tokens=64", "--log.tensorboard=false", *settings)
    return max((directory / "checkpoints").glob("step-*"))


def same_loss(program, ours, model, tokenizer, path):
    """Of a model that atoll reads from `ours` and transformers holds."""
    theirs, mine = tiny.loss(model, tokenizer, path.read_text()), tiny.atoll_loss(program, ours, path)
    expect(abs(theirs - mine) < tiny.LOSS_TOLERANCE, f"the loss is {mine}, in transformers {theirs}")
    return f"the loss, {mine}, the same"


def full(program, work, family, texts):
    """All weights."""
    base = work / family
    tiny.save_random(family, base)
    checkpoint = train(program, base, work / f"{family}-full", texts[0])
    model, tokenizer = tiny.load(checkpoint)
    expect(model.config.vocab_size == len(tokenizer), f"{model.config.vocab_size} rows")
    return same_loss(program, checkpoint, model, tokenizer, texts[1])


def tokens(_program, work, family, texts):
    """The tokenizer of `full`."""
    ours = tiny.load(work / family)[1]
    ours.add_special_tokens({"additional_special_tokens": TOKENS})
    checkpoint = max((work / f"{family}-full" / "checkpoints").glob("step-*"))
    theirs = tiny.load(checkpoint)[1]
    text = "".join(f"{TOKENS[0]}{line}{TOKENS[1]}\n" for line in texts[1].read_text().splitlines())
    expect(ours(text).input_ids == theirs(text).input_ids, "other ids than transformers gives")
    expect(ours.convert_tokens_to_ids(TOKENS) == theirs.convert_tokens_to_ids(TOKENS), "other ids")
    plain = theirs.decode(theirs(text).input_ids, skip_special_tokens=True)
    expect(TOKENS[0] not in plain, "the tokens are not special")
    return f"{len(theirs(text).input_ids)} ids the same"


def rows(program, work, family, texts):
    """A run that learns nothing."""
    checkpoint = train(program, work / family, work / f"{family}-still", texts[0],
                       "--optim.weight_decay=0", "--optim.warmup_steps=0", rate="1e-30", steps=1)
    resized = tiny.load(work / family)[0]
    old = resized.config.vocab_size
    resized.resize_token_embeddings(old + len(TOKENS))
    model = tiny.load(checkpoint)[0]
    worst = 0.0
    for pick in ("get_input_embeddings", "get_output_embeddings"):
        ours, theirs = (getattr(m, pick)().weight[old:] for m in (model, resized))
        expect(len(ours) == len(TOKENS), f"{len(ours)} new rows")
        worst = max(worst, (ours - theirs).abs().max().item())
    # transformers spreads them by 1e-9 times the covariance: by 3e-5 of the rows' deviation.
    spread = resized.get_input_embeddings().weight[:old].std().item()
    expect(worst < 3e-4 * spread, f"new rows differ by {worst}, of rows that deviate by {spread}")
    return f"new rows within {worst:.1e} of transformers'"


def adapter(program, work, family, texts):
    """Beside an adapter."""
    base = work / family
    checkpoint = train(program, base, work / f"{family}-lora", texts[0], "--lora.rank=4",
                       f"--lora.modules_to_save={MODULES[family]}")
    model = tiny.load(base)[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model.resize_token_embeddings(len(tokenizer))
    model = peft.PeftModel.from_pretrained(model, checkpoint).eval()
    said = same_loss(program, checkpoint, model, tokenizer, texts[1])
    out = work / f"{family}-merged"
    run(program, "export", checkpoint, "--out", out, "--merge")
    merged, tokenizer = tiny.load(out)
    head = merged.get_output_embeddings().weight
    expect((head is merged.get_input_embeddings().weight) == (family == "llama3"), "tied or not")
    same_loss(program, out, merged, tokenizer, texts[1])
    return said


def main():
    """See above."""
    program, work = arguments("new_tokens")
    checks = Checks("new_tokens")
    texts = tiny.write_texts(work)
    torch.manual_seed(1)
    for family in MODULES:
        for name, check in {"full": full, "tokens": tokens, "rows": rows,
                            "adapter": adapter}.items():
            checks.run(f"{family} {name}", check, program, work, family, texts)
    checks.finish()


if __name__ == "__main__":
    main()
