#!/usr/bin/env python3
"""Writes where the pre-tokenizer UnicodeScripts of Hugging Face's library cuts, for src/atoll/text.

    .venv-golden/bin/pip install tokenizers==0.23.3
    .venv-golden/bin/python tools/golden/unicode_scripts.py src/atoll/text/unicode_scripts.inc

The library has scripts of a Unicode of its own, takes Hiragana and Katakana for Han, and the space
and what is not assigned for any script. So every code point is asked for. Scripts have numbers, in
the order of their first characters; what is of any script is in no range.
"""

import sys
from pathlib import Path

from tokenizers import pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def script_ranges():
    """(first, last, script) of every run of code points of one script."""
    split = pre_tokenizers.UnicodeScripts().pre_tokenize_str
    assigned = [c for c in CODE_POINTS if split(chr(c))]  # alone, any script gives nothing
    scripts, rows = [], []
    for piece, _ in split("".join(map(chr, assigned))):
        same = (i for i, first in enumerate(scripts) if len(split(first + piece[0])) == 1)
        script = next(same, len(scripts))
        if script == len(scripts):
            scripts.append(piece[0])
        for c in map(ord, piece):
            if rows and rows[-1][1] == c - 1 and rows[-1][2] == script:
                rows[-1][1] = c
            else:
                rows.append([c, c, script])
    return rows


def main():
    text = "// Made by tools/golden/unicode_scripts.py from tokenizers 0.23.3; do not edit.\n\n"
    text += "// First and last code point, and the number of their script.\n"
    text += "constexpr ScriptRange kScriptRanges[] = {\n"
    text += "".join(f"    {{0x{a:X}, 0x{b:X}, {script}}},\n" for a, b, script in script_ranges())
    Path(sys.argv[1]).write_text(text + "};\n")


if __name__ == "__main__":
    main()
