#!/usr/bin/env python3
"""Writes the tokenizer fixtures that src/atoll/text/hugging_face_test.cpp reads.

The reference is Hugging Face's `tokenizers` library:

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install tokenizers==0.23.3
    .venv-golden/bin/python tools/golden/tokenizer_oracle.py fixture KJV.txt src/atoll/text/testdata

KJV.txt is what `bible -f Gen1:1-Rev22:21` prints (Debian packages bible-kjv, bible-kjv-text). For a
wider comparison than a repository should carry, write strings and reference ids as JSON lines, and
compare them with what another program made of them:

    tokenizer_oracle.py strings 20000 > strings.jsonl
    tokenizer_oracle.py encode tokenizer.json strings.jsonl > ids.jsonl
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

# Words, and everything that word patterns treat in some way of their own.
FRAGMENTS = [
    "the", "And", "LORD", " God", "word", "naïve", "Ünïcödé", "straße", "Привет", "שלום", "مرحبا",
    "नमस्ते", "中文字", "日本語", "한국어", "'s", "'S", "'t", "'re", "'VE", "'ll", "'d", "'", "’s", "'ſ", "ſ",
    "0", "42", "123456", "٣٤", "Ⅷ", "½", "²", "๕", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r",
    "\v", "\f", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u180e", "\u2003", "\u200b", "\u2028",
    "\u202f", "\u3000", "\ufeff", ".", ",", "!?", "...", "--", "_", "__init__", "#", "$1.50", "%", "@",
    "(", ")", "[x]", "{y}", "\\", "/", "\"", "`", "~", "^", "|", "<", ">", "<|endoftext|>",
    "<|endoftext|", "<|endof", "endoftext|>", "é", "e\u0301", "a\u0308\u0323", "\u0301", "ﬁ", "Å",
    "\u212b", "한", "\u1112\u1161\u11ab", "😀", "👍🏽", "👨‍👩‍👧", "🇫🇷", "\U0001d400", "\x00",
    "\x7f", "\ufffd", "\uffff", "\U0010ffff", "\ue000", "a" * 40, "x" * 200, "=" * 60, " " * 50,
    "https://a.b/c?d=e&f", "camelCaseWord", "HTTPServer", "1e-5", "0x1F", "3.14", "10,000", "I'm",
    "can't", "DON'T", "we'd've", "Ge1:1", "Ġ", "Ċ", "Ģ",
]

# As Llama 3 files have it.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def awkward_strings(count, seed=1):
    """`count` deterministic strings: each fragment alone, then random runs of fragments."""
    rng = random.Random(seed)
    strings = [""] + FRAGMENTS
    while len(strings) < count:
        if rng.random() < 0.15:
            run = [chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x80, 0xD800)]))
                   for _ in range(rng.randrange(1, 12))]
        else:
            run = [rng.choice(FRAGMENTS) for _ in range(rng.randrange(1, 9))]
        strings.append("".join(run))
    return strings[:count]


def kinds():
    """Name -> (tokenizer without a model's training, special tokens)."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    no_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    llama3 = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"), no_regex])
    nfc_digits = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return {
        "gpt2": (byte_level, None),
        "prefix_space": (pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        "llama3": (llama3, None),
        "nfc_digits": (nfc_digits, normalizers.NFC()),
        "nfkd": (byte_level, normalizers.NFKD()),
    }


def train(kind, text, vocab_size):
    """A tokenizer of one of kinds(), trained on `text`."""
    pre_tokenizer, normalizer = kinds()[kind]
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def write_fixture(text_path, directory):
    """Two tokenizers, what they were trained on, 200 strings and the ids of each in each."""
    directory.mkdir(parents=True, exist_ok=True)
    # The awkward strings are in the training text too: only where merges exist do ids show how a
    # string was cut.
    training = Path(text_path).read_text()[:12_000] + "".join(awkward_strings(400, seed=2))
    strings = awkward_strings(200)
    ids = {}
    for kind in ("gpt2", "llama3"):
        tokenizer = train(kind, training, 700)
        (directory / f"{kind}.json").write_text(tokenizer.to_str(pretty=False) + "\n")
        ids[kind] = [tokenizer.encode(s).ids for s in strings]
    fixture = {"training": training, "strings": strings, **ids}
    (directory / "ids.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


def main():
    command = sys.argv[1]
    if command == "fixture":
        write_fixture(sys.argv[2], Path(sys.argv[3]))
    elif command == "train":
        train(sys.argv[2], Path(sys.argv[3]).read_text(), int(sys.argv[4])).save(sys.argv[5])
    elif command == "strings":
        for s in awkward_strings(int(sys.argv[2])):
            print(json.dumps(s))
    elif command == "encode":
        tokenizer = Tokenizer.from_file(sys.argv[2])
        for line in open(sys.argv[3]):
            ids = tokenizer.encode(json.loads(line)).ids
            text = tokenizer.decode(ids, skip_special_tokens=False)
            print(json.dumps({"ids": ids, "text": text}))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
