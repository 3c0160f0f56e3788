#!/usr/bin/env python3
"""Writes the tokenizer fixtures that src/atoll/text/hugging_face_test.cpp reads.

The reference is Hugging Face's `tokenizers` library:

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    .venv-golden/bin/python tools/golden/tokenizer_oracle.py src/atoll/text/testdata

For each of kinds() and of MODELS it trains a small tokenizer of the shape that well-known models have, and hashes
the ids, and the text that they decode to, of 5,000 awkward strings in blocks of 50. byte.json and
char.json are not trained: they are what make_byte_tokenizer and make_char_tokenizer make (of
training.txt), copied here. Names of kinds behind the directory make only those anew: training with an
alphabet of limited size breaks ties by chance. training.txt is 12,000 characters of the King James Bible and, so that
merges show how strings are cut, awkward strings.

SentencePiece needs no fixture: sentence_piece_test.cpp trains models with that library and compares
with it.
"""

import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

from awkward_strings import awkward_strings, block_hashes, id_bytes, lossy
from tokenizer_models import MODELS

NUM_STRINGS = 5000
SEED = 1

# As the tokenizer.json files of these models have them.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPACE = "▁"


def byte_level(*before, **options):
    """What byte-level kinds share; `before` are pre-tokenizer steps ahead of ByteLevel."""
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=options.pop("regex", False))
    steps = pre_tokenizers.Sequence([*before, last]) if before else last
    return {"pre_tokenizer": steps, "decoder": decoders.ByteLevel(),
            "post_processor": processors.ByteLevel(trim_offsets=False),
            "specials": ["<|endoftext|>"], **options}


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def from_sentence_piece(strip, **options):
    """What kinds converted from SentencePiece share."""
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if strip:
        steps.append(decoders.Strip(content=" ", left=1))
    return {"decoder": decoders.Sequence(steps), "specials": ["<unk>", "<s>", "</s>"],
            "model": {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
            "bos": "<s>", **options}


def added(content, index, **flags):
    """An entry of added_tokens, as a file has it."""
    return {"id": index, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": False, **flags}


def old_metaspace(part):
    """As versions before 0.15 wrote it."""
    del part["prepend_scheme"], part["split"]
    part.update(str_rep=SPACE, add_prefix_space=True)


def as_roberta(data):
    """What the library reads and does not write: tokens that are there twice, and old fields."""
    data["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst",
                          "stride": 0}
    data["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                       "pad_id": 1, "pad_type_id": 0, "pad_token": "<pad>"}
    vocab = data["model"]["vocab"]
    size = len(vocab)
    # "the" has its id in the vocabulary; the two entries of "of" make one token, and "to" is the next.
    data["added_tokens"] += [
        added("the", 7, single_word=True), added("of", size, special=True),
        added("of", size + 5, lstrip=True, single_word=True), added("", 3),
        added("to", size + 9, single_word=True, rstrip=True), added("\u0436", 0, single_word=True)]
    data["normalizer"] = {"type": "Sequence", "normalizers": [], "novel": None}


def as_old(data):
    old_metaspace(data["pre_tokenizer"])
    old_metaspace(data["decoder"])
    data["model"].update(dropout=None, novel=False)


def kinds():
    """Name -> what a tokenizer of that kind is made of."""
    return {
        "gpt2": byte_level(regex=True),
        "llama3": byte_level(split(Regex(LLAMA3)), model={"ignore_merges": True},
                             added=["<|begin_of_text|>", "<|eot_id|>"], bos="<|begin_of_text|>"),
        "qwen2": byte_level(
            split(Regex(QWEN2)), normalizer=normalizers.NFC(),
            added=["<|im_start|>", "<|im_end|>",
                   AddedToken("<tool_call>", normalized=False, special=False)]),
        "smollm2": byte_level(pre_tokenizers.Digits(individual_digits=True), regex=True),
        "tekken": byte_level(split(Regex(TEKKEN)), specials=["<unk>", "<s>", "</s>", "[INST]"],
                             bos="<s>"),
        "splits": byte_level(
            split(",", "merged_with_previous"), split(Regex(r"\s+"), "merged_with_next"),
            split(Regex("[aeiou]"), "contiguous"), split("x", "removed"),
            split(Regex(r"\p{L}"), "contiguous", True),
            normalizer=normalizers.Sequence([
                normalizers.Strip(), normalizers.Lowercase(),
                normalizers.Replace(Regex(r"\d+"), "#"), normalizers.NFKD()])),
        "llama2": from_sentence_piece(
            True, normalizer=normalizers.Sequence(
                [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])),
        "mistral": from_sentence_piece(
            True, pre_tokenizer=pre_tokenizers.Metaspace(
                replacement=SPACE, prepend_scheme="first", split=False)),
        "gemma": from_sentence_piece(
            False, normalizer=normalizers.Replace(" ", SPACE),
            pre_tokenizer=split(" ", "merged_with_previous"),
            added=["<start_of_turn>", AddedToken("\n\n", normalized=False, special=False)]),
        "metaspace": {
            "specials": ["<unk>"], "model": {"fuse_unk": True, "unk_token": "<unk>"},
            "pre_tokenizer": pre_tokenizers.Metaspace(), "decoder": decoders.Metaspace(),
            "normalizer": normalizers.NFKC(),
            "added": [AddedToken("<s>", lstrip=True, special=True),
                      AddedToken("word", normalized=True, special=False)]},
        "unk_each": {
            "specials": ["<unk>"], "model": {"unk_token": "<unk>"}, "normalizer": normalizers.NFD(),
            "pre_tokenizer": pre_tokenizers.Metaspace(prepend_scheme="never", split=True),
            "decoder": decoders.Metaspace(prepend_scheme="never")},
        "roberta": byte_level(
            regex=True, specials=["<s>", "<pad>", "</s>"], edit=as_roberta,
            post_processor=processors.RobertaProcessing(("</s>", 2), ("<s>", 0))),
        "old_metaspace": {
            "specials": ["<unk>"], "model": {"fuse_unk": True, "unk_token": "<unk>"},
            "pre_tokenizer": pre_tokenizers.Metaspace(), "decoder": decoders.Metaspace(),
            "edit": as_old},
    }


def train(kind, text):
    """A tokenizer of one of kinds(), trained on `text`."""
    parts = kinds()[kind]
    is_bytes = isinstance(parts["decoder"], decoders.ByteLevel)
    tokenizer = Tokenizer(models.BPE(**parts.get("model", {})))
    if "normalizer" in parts:
        tokenizer.normalizer = parts["normalizer"]
    # Without words training would merge across spaces; the pre-tokenizer proper comes afterwards.
    own = parts.get("pre_tokenizer")
    tokenizer.pre_tokenizer = own if is_bytes else pre_tokenizers.Metaspace()
    fallback = parts.get("model", {}).get("byte_fallback", False)
    specials = parts["specials"] + [f"<0x{b:02X}>" for b in range(256)] * fallback
    tokenizer.train_from_iterator([text] if is_bytes else text.splitlines(), trainers.BpeTrainer(
        vocab_size=700 if is_bytes or fallback else 450, special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if is_bytes else [],
        show_progress=False, **({} if is_bytes else {"limit_alphabet": 120})))
    # Byte tokens are no added tokens: text that spells one is text.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:len(parts["specials"])]
    data["pre_tokenizer"] = json.loads(own.__getstate__()) if own else None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = parts["decoder"]
    for token in parts.get("added", []):
        if isinstance(token, str):
            tokenizer.add_special_tokens([token])
        else:
            tokenizer.add_tokens([token])
    post = parts.get("post_processor")
    if "bos" in parts:
        template = processors.TemplateProcessing(
            single=f"{parts['bos']} $A",
            special_tokens=[(parts["bos"], tokenizer.token_to_id(parts["bos"]))])
        post = processors.Sequence([post, template]) if post else template
    if post:
        tokenizer.post_processor = post
    return tokenizer


def text_of(kind, text):
    """The file of a kind."""
    if kind in MODELS:
        return MODELS[kind](text)
    written = train(kind, text).to_str(pretty=False)
    if "edit" not in kinds()[kind]:
        return written
    data = json.loads(written)
    kinds()[kind]["edit"](data)
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def hashes(tokenizer, strings):
    """Of the ids of the strings, and of what they decode to."""
    # As transformers has them, unless it is told otherwise.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    ids = [tokenizer.encode(s).ids for s in strings]
    texts = [tokenizer.decode(i, skip_special_tokens=False).encode() for i in ids]
    return {"ids": block_hashes([id_bytes(i) for i in ids]), "texts": block_hashes(texts)}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    directory = Path(sys.argv[1])
    wanted = sys.argv[2:] or [*kinds(), *MODELS, "byte", "char"]
    training = (directory / "training.txt").read_bytes().decode()
    strings = [lossy(s) for s in awkward_strings(NUM_STRINGS, SEED)]
    hashes_file = directory / "hashes.json"
    result = json.loads(hashes_file.read_text()) if hashes_file.exists() else {}
    for kind in wanted:
        path = directory / f"{kind}.json"
        if kind in kinds() or kind in MODELS:
            path.write_text(text_of(kind, training) + "\n")
        result[kind] = hashes(Tokenizer.from_file(str(path)), strings)
    lines = [f"{json.dumps(kind)}: {json.dumps(value)}" for kind, value in result.items()]
    hashes_file.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
