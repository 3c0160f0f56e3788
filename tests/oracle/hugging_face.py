"""Models of every family, from transformers to atoll and back.

    python tests/oracle/hugging_face.py build/release/bin/atoll WORK_DIRECTORY

saved    transformers saves a random model with a tokenizer: `atoll generate --greedy` writes what
         transformers writes, and `atoll eval` measures its loss.
trained  `atoll train` makes a model, with one of the kinds of tokenizers, and `atoll export` a
         directory: transformers loads it, and writes and measures what atoll does. So does it
         with a checkpoint that three ranks wrote.
export   a directory that was loaded goes back bit for bit, whole or in shards, as f32, bf16 and
         f16, also through a run that changes nothing; conversions round as torch does.
"""

import json

import torch
import transformers
from safetensors.torch import load_file

from reference import tiny
from reference.checks import Checks, arguments, expect, needs, run

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SIZES = ["--model.hidden_size=48", "--model.num_hidden_layers=2", "--model.num_attention_heads=4",
         "--model.initializer_range=0.1"]
GROUPED = [*SIZES, "--model.num_key_value_heads=2", "--model.head_dim=16"]
LOOP = ["--train.steps=25", f"--train.context={tiny.CONTEXT}", "--train.batch_size=8",
        "--optim.lr=5e-3", "--log.tensorboard=false", "--eval.max_tokens=256"]


def trained_flags(family, work):
    """A new model of each family, each with another kind of tokenizer."""
    if family == "llama3":  # the stretched rotation stands in a config.json only
        tokenizer = tiny.tokenizer_of(family)
        tiny.config_of(family, tokenizer).save_pretrained(work / "llama3-config")
        return [f"--model.config={work / 'llama3-config' / 'config.json'}",
                f"--data.tokenizer={tiny.TOKENIZERS / 'llama3.json'}"]
    bpe = ["--data.vocab_size=400"]
    return [f"--model.family={family.removesuffix('2') if family == 'llama2' else family}"] + {
        "llama2": [*SIZES, "--model.tie_word_embeddings=false",
                   f"--data.tokenizer={tiny.TOKENIZERS / 'llama2.json'}"],
        "mistral": [*GROUPED, "--model.sliding_window=16",
                    f"--data.tokenizer={tiny.TOKENIZERS / 'mistral.json'}"],
        "qwen2": [*GROUPED, "--data.new_tokenizer=byte"],
        "qwen3": [*GROUPED, "--data.new_tokenizer=char"],
        "gpt2": [*SIZES, *bpe],
    }[family]


def saved(program, work, family, text):
    """By transformers; read by atoll."""
    directory = work / f"{family}-saved"
    tiny.save_random(family, directory)
    return tiny.same_behaviour(program, directory, *tiny.load(directory), text)


def train_and_export(program, work, name, flags, text):
    """The directory that atoll writes of a new run."""
    directory, out = work / f"{name}-run", work / f"{name}-trained"
    run(program, "train", f"--run.dir={directory}", f"--data.text={text}", *LOOP, *flags)
    run(program, "export", directory, "--out", out)
    return directory, out


def trained(program, work, family, texts):
    """By atoll; read by transformers."""
    directory, out = train_and_export(program, work, family, trained_flags(family, work), texts[0])
    model, tokenizer = tiny.load(out)
    asked = {"model_type": tiny.FAMILIES[family].make_config.model_type,
             "rope_parameters": {"llama3": tiny.LLAMA3_ROPE}.get(family),
             "sliding_window": {"mistral": 16}.get(family)}
    for field, value in asked.items():
        found = getattr(model.config, field, None)
        expect(value is None or found == value, f"the {field} is {found}, not {value}")
    return tiny.same_behaviour(program, directory, model, tokenizer, texts[1])


def of_ranks(program, work, texts):
    """Written by three ranks, which hold parts of every parameter: a checkpoint is read as it is."""
    flags = ["-n", "3", "--dp.zero=3", "--train.micro_batch=2", "--checkpoint.async=true",
             *trained_flags("gpt2", work)]
    directory, out = train_and_export(program, work, "ranks", flags, texts[0])
    [checkpoint] = (directory / "checkpoints").iterdir()
    expect(len(list(checkpoint.glob("model-*-of-00003.safetensors"))) == 3, "not three files")
    expect_same(tensors_of(checkpoint), tensors_of(out))
    return tiny.same_behaviour(program, directory, *tiny.load(checkpoint), texts[1])


def sentence_piece(program, work, texts):
    """A run with a tokenizer.model that the SentencePiece library trained, with the normalization
    of Llama's: none. The export has a tokenizer.json as well, since transformers reads past any
    other and does not double a text's first space; the ids must be the library's."""
    needs("sentencepiece")
    needs("google.protobuf")  # with which transformers reads such files
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=str(texts[0]), model_prefix=str(work / "pieces"), model_type="bpe", vocab_size=400,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        minloglevel=2, num_threads=1)
    flags = ["--model.family=llama", *GROUPED, f"--data.tokenizer={work / 'pieces.model'}"]
    directory, out = train_and_export(program, work, "pieces", flags, texts[0])
    model, tokenizer = tiny.load(out)
    library = sentencepiece.SentencePieceProcessor(model_file=str(work / "pieces.model"))
    for text in (texts[1].read_text(), "  two spaces", " one", "ﬁ ½ \u3000 é\n x"):
        ours = tokenizer(text, add_special_tokens=False).input_ids
        expect(ours == library.encode(text), f"other ids than the library's for {text[:20]!r}")
    return tiny.same_behaviour(program, directory, model, tokenizer, texts[1])


def tensors_of(directory):
    """All weights of a directory, of one file or of those that its index names."""
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return load_file(directory / "model.safetensors")
    where = json.loads(index.read_text())["weight_map"]
    tensors = {}
    for name in sorted(set(where.values())):
        tensors |= load_file(directory / name)
    expect(tensors.keys() == where.keys(), "the index and its shards name different tensors")
    return tensors


def expect_same(ours, theirs):
    """Names, shapes, dtypes and bits."""
    expect(ours.keys() == theirs.keys(), f"tensors {sorted(ours.keys() ^ theirs.keys())} differ")
    for name, tensor in theirs.items():
        mine = ours[name]
        expect((mine.dtype, mine.shape) == (tensor.dtype, tensor.shape),
               f"{name} is {mine.dtype} {tuple(mine.shape)} and was {tensor.dtype} "
               f"{tuple(tensor.shape)}")
        expect(torch.equal(mine.view(torch.uint8), tensor.view(torch.uint8)),
               f"{name} has other bits")


def exported(program, work, family, dtype):
    """What was saved in one dtype, exported in every way that changes nothing."""
    source = work / f"{family}-{dtype}"
    tiny.save_random(family, source, DTYPES[dtype])
    theirs = tensors_of(source)
    for name, flags in {"whole": [], "sharded": ["--shard-size", "30KB"]}.items():
        out = work / f"{source.name}-{name}"
        run(program, "export", source, "--out", out, *flags)
        expect_same(tensors_of(out), theirs)
        shards = len(list(out.glob("*.safetensors")))
        expect((shards > 1) == (name == "sharded"), f"{shards} files, {name}")
        # transformers' own way through the files.
        again = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto")
        expect(again.dtype == DTYPES[dtype], f"{out} loads as {again.dtype}")
        expect_same({k: v for k, v in again.state_dict().items() if k in theirs}, theirs)
    return f"{len(theirs)} tensors bit for bit, also in {shards} shards"


def through_a_run(program, work, text, dtype):
    """A run whose one step is too small to change an f32: load, save and export alone."""
    source = work / f"qwen2-{dtype}"
    directory, out = work / f"{source.name}-run", work / f"{source.name}-through"
    run(program, "train", f"--model.from={source}", f"--data.text={text}", "--train.steps=1",
        f"--run.dir={directory}", f"--train.context={tiny.CONTEXT}", "--train.batch_size=8",
        "--optim.lr=1e-30", "--log.tensorboard=false", "--eval.max_tokens=64")
    run(program, "export", directory, "--out", out)
    expect_same(tensors_of(out), tensors_of(source))
    return "bit for bit"


def converted(program, work, dtype):
    """f32 to a narrower type, rounded as torch rounds."""
    source, out = work / "gpt2-f32", work / f"gpt2-f32-as-{dtype}"
    run(program, "export", source, "--out", out, "--dtype", dtype)
    expect_same(tensors_of(out), {k: v.to(DTYPES[dtype]) for k, v in tensors_of(source).items()})
    return "bit for bit"


def main():
    """See above."""
    program, work = arguments("hugging_face")
    checks = Checks("hugging_face")
    texts = tiny.write_texts(work)
    for family in tiny.FAMILIES:
        checks.run(f"{family} saved", saved, program, work, family, texts[1])
    for family in tiny.FAMILIES:
        checks.run(f"{family} trained", trained, program, work, family, texts)
    checks.run("gpt2 of three ranks trained", of_ranks, program, work, texts)
    checks.run("llama with a SentencePiece model trained", sentence_piece, program, work, texts)
    for family in ("qwen2", "gpt2"):
        for dtype in DTYPES:
            checks.run(f"{family} {dtype} export", exported, program, work, family, dtype)
    for dtype in DTYPES:
        checks.run(f"{dtype} through a run", through_a_run, program, work, texts[0], dtype)
    for dtype in ("bf16", "f16"):
        checks.run(f"f32 export as {dtype}", converted, program, work, dtype)
    checks.finish()


if __name__ == "__main__":
    main()
