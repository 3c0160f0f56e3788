#!/usr/bin/env python3
"""Writes which characters Hugging Face's tokenizers count as what, for src/atoll/text.

    .venv-golden/bin/pip install tokenizers==0.23.3
    .venv-golden/bin/python tools/golden/unicode_classes.py src/atoll/text/unicode_classes.inc

The library's parts come with Unicode of different ages. So every code point is asked for.
"""

import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def is_word():
    """What a single_word token may not touch, and what Whitespace keeps together."""
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
    tokenizer.add_tokens([AddedToken("<z>", single_word=True, normalized=False)])
    token = tokenizer.token_to_id("<z>")
    return lambda c: token not in tokenizer.encode("<z>" + c).ids


def is_punctuation():
    split = pre_tokenizers.Punctuation().pre_tokenize_str
    return lambda c: len(split("a" + c)) == 2


def is_removed_by(normalizer):
    return lambda c: normalizer.normalize_str("a" + c + "b") == "ab"


def bert(**on):
    options = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
               "lowercase": False}
    return normalizers.BertNormalizer(**{**options, **on})


def classes():
    """Name in the table, what it is, and the test."""
    return [
        ("kWord", "Regular expressions' word characters.", is_word()),
        ("kPunctuation", "What Punctuation and BertPreTokenizer cut out.", is_punctuation()),
        ("kAccent", "What StripAccents removes.", is_removed_by(normalizers.StripAccents())),
        ("kBertAccent", "What BertNormalizer's strip_accents removes.",
         is_removed_by(bert(strip_accents=True))),
        ("kControl", "What BertNormalizer's clean_text removes.",
         is_removed_by(bert(clean_text=True))),
        ("kBertSpace", "What BertNormalizer's clean_text makes a space, beside the space.",
         lambda c: c != " " and bert(clean_text=True).normalize_str(c) == " "),
        ("kChinese", "What BertNormalizer's handle_chinese_chars puts spaces round.",
         lambda c: bert(handle_chinese_chars=True).normalize_str(c) == f" {c} "),
        ("kNmtRemoved", "What Nmt removes.", is_removed_by(normalizers.Nmt())),
        ("kNmtSpace", "What Nmt makes a space, beside the space.",
         lambda c: c != " " and normalizers.Nmt().normalize_str(c) == " "),
    ]


def ranges(code_points):
    rows = []
    for c in code_points:
        if rows and rows[-1][1] == c - 1:
            rows[-1][1] = c
        else:
            rows.append([c, c])
    return rows


def main():
    text = "// Made by tools/golden/unicode_classes.py from tokenizers 0.23.3; do not edit.\n"
    for name, what, test in classes():
        text += f"\n// {what}\nconstexpr ClassRange {name}Ranges[] = {{\n"
        rows = ranges(c for c in CODE_POINTS if test(chr(c)))
        text += "".join(f"    {{0x{a:X}, 0x{b:X}}},\n" for a, b in rows) + "};\n"
    Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
