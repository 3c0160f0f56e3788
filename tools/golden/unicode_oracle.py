#!/usr/bin/env python3
"""Writes which Unicode Hugging Face's normalizers have, for src/atoll/text/normalizer.cpp.

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install tokenizers==0.23.3 unicodedata2==18.0.0
    .venv-golden/bin/python tools/golden/unicode_oracle.py src/atoll/text

`tokenizers` 0.23.3 composes and decomposes as Unicode 9.0 and lowers as Unicode 17.0, whatever its
users' systems have. Two tables say so (unicode_pins.inc):

- the code points that Unicode 18.0 gives a decomposition, a combining class or a part in a
  composition, and the library does not: to it they are as a letter that nothing combines with;
- every code point that the library lowers to another one.

That the first table and the rules of a newer Unicode together do what the library does is checked
here on every code point and on 100,000 random strings. testdata/normalizers.json has what the library
makes of every code point, as hashes, and of some strings, for normalizer_test.cpp.
"""

import json
import random
import re
import sys
from pathlib import Path

import unicodedata2
from tokenizers import normalizers

from awkward_strings import block_hashes

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
NORMALIZE = {form: getattr(normalizers, form)().normalize_str for form in FORMS}
NORMALIZE["Lowercase"] = normalizers.Lowercase().normalize_str
NORMALIZE["Strip"] = normalizers.Strip().normalize_str
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 4096
OVERLAY, BELOW, ABOVE = "\u0334", "\u0316", "\u0301"  # marks of the classes 1, 220 and 230


def compositions():
    """(first, second) to what they compose to, in the newer Unicode."""
    pairs = {}
    for c in CODE_POINTS:
        parts = unicodedata2.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if unicodedata2.normalize("NFC", pair) == chr(c):
                pairs[pair] = chr(c)
    return pairs


def is_new(c):
    """Whether the newer Unicode knows a decomposition or class of `c` that the library does not."""
    if NORMALIZE["NFKD"](c) != c:
        return False
    if unicodedata2.normalize("NFKD", c) != c:
        return True
    order = unicodedata2.combining(c)
    if order == 0:
        return False
    text = "a" + c + OVERLAY if order > 1 else "a" + ABOVE + c
    return NORMALIZE["NFD"](text) == text


def inert():
    """The first table."""
    found = {chr(c) for c in CODE_POINTS if is_new(chr(c))}
    pairs = compositions()
    made = {pair for pair, whole in pairs.items() if NORMALIZE["NFC"](pair) == whole}
    old_parts = {c for pair in made for c in pair}
    found |= {c for pair in pairs if pair not in made for c in pair if c not in old_parts}
    return sorted(found)


def check(table):
    """That the library is the newer Unicode cut at the characters of the table."""
    cut = re.compile("([" + "".join(table) + "])")
    marks = [chr(c) for c in CODE_POINTS if unicodedata2.combining(chr(c))]
    composed = [chr(c) for c in CODE_POINTS if unicodedata2.decomposition(chr(c))]
    pool = table * 8 + marks * 4 + composed + list("aA\u1100\u1161\u11a8\uac00") * 300
    draw = random.Random(1)
    texts = [chr(c) for c in CODE_POINTS]
    texts += ["".join(draw.choices(pool, k=draw.randint(2, 6))) for _ in range(100_000)]
    for form in FORMS:
        for text in texts:
            pieces = [p if p in table else unicodedata2.normalize(form, p) for p in cut.split(text)]
            assert "".join(pieces) == NORMALIZE[form](text), (form, text.encode("unicode_escape"))
    return texts[-300:]


def ranges(code_points):
    rows = []
    for c in code_points:
        if rows and rows[-1][1] == c - 1:
            rows[-1][1] = c
        else:
            rows.append([c, c])
    return rows


def lower_rows():
    """[first, last, step, difference] of what is lowered to one other character."""
    rows = []
    for c in CODE_POINTS:
        lower = NORMALIZE["Lowercase"](chr(c))
        if lower == chr(c) or len(lower) != 1:
            continue
        difference = ord(lower) - c
        last = rows[-1] if rows else [0, -9, 1, 0]
        step = c - last[1]
        is_next = difference == last[3] and (step == last[2] or (last[0] == last[1] and step <= 2))
        if is_next:
            rows[-1] = [last[0], c, step, difference]
        else:
            rows.append([c, c, 1, difference])
    return rows


def table_text(table):
    text = ("// Made by tools/golden/unicode_oracle.py from tokenizers 0.23.3; do not edit.\n\n"
            "// Newer than Unicode 9.0, which the library composes and decomposes by.\n"
            "constexpr CodeRange kInert[] = {\n")
    text += "".join(f"    {{0x{a:X}, 0x{b:X}}},\n" for a, b in ranges(map(ord, table)))
    text += ("};\n\n// Lower case as in Unicode 17.0: first, last, step, difference.\n"
             "constexpr LowerRow kLower[] = {\n")
    text += "".join(f"    {{0x{a:X}, 0x{b:X}, {s}, {d}}},\n" for a, b, s, d in lower_rows())
    return text + "};\n"


def fixture(texts):
    single = {}
    for name, normalize in NORMALIZE.items():
        # Between marks, so that a combining class shows, and a blank for Strip.
        frames = [chr(c) if name in ("Lowercase", "Strip") else
                  f"{chr(c)} a{ABOVE}{chr(c)}{OVERLAY}{BELOW}" for c in CODE_POINTS]
        single[name] = block_hashes([normalize(text).encode() for text in frames], BLOCK)
    strings = [{"text": text, **{form: NORMALIZE[form](text) for form in FORMS}} for text in texts]
    return {"code_points": single, "strings": strings}


def main():
    folder = Path(sys.argv[1])
    table = inert()
    texts = check(table)
    (folder / "unicode_pins.inc").write_text(table_text(table))
    data = json.dumps(fixture(texts), indent=0) + "\n"
    (folder / "testdata/normalizers.json").write_text(data)


if __name__ == "__main__":
    main()
