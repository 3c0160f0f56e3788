"""Strings that tokenizers find hard, the same in Python and in C++ (src/atoll/text/testing.h).

The fragments are in src/atoll/text/testdata/fragments.json: "text" and, as hexadecimal bytes,
"invalid" (not UTF-8). A counter-based generator puts them together, so that 5,000 strings cost
nothing to store. Run as a program it writes the strings with their ids, for a look at a difference
that the tests found:

    awkward_strings.py tokenizer.json FIRST COUNT
"""

import json
import sys
from pathlib import Path

FRAGMENTS = Path(__file__).parents[2] / "src/atoll/text/testdata/fragments.json"
MASK = (1 << 64) - 1


class Random:
    """SplitMix64 (Steele, Lea and Flood 2014); below() takes the remainder."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n


def awkward_strings(count, seed):
    """`count` byte strings: none, each fragment alone, then random runs."""
    data = json.loads(FRAGMENTS.read_text())
    text = [f.encode() for f in data["text"]]
    invalid = [bytes.fromhex(f) for f in data["invalid"]]
    strings = [b""] + text + invalid
    random = Random(seed)
    while len(strings) < count:
        kind = random.below(100)
        run = []
        if kind < 15:
            for _ in range(1 + random.below(11)):
                ascii_only = random.below(2) == 0
                c = 32 + random.below(95) if ascii_only else 0x80 + random.below(0xD780)
                run.append(chr(c).encode())
        else:
            for _ in range(1 + random.below(8)):
                pool = invalid if kind < 25 and random.below(3) == 0 else text
                run.append(pool[random.below(len(pool))])
        strings.append(b"".join(run))
    return strings[:count]


def lossy(raw):
    """What a library that takes only text is given: U+FFFD for each maximal invalid part."""
    return raw.decode("utf-8", "replace")


def block_hashes(items, block=50):
    """FNV-1a (64 bits) of each block of byte strings, each followed by its length."""
    hashes = []
    for first in range(0, len(items), block):
        value = 0xCBF29CE484222325
        for item in items[first:first + block]:
            for byte in item + len(item).to_bytes(4, "little"):
                value = ((value ^ byte) * 0x100000001B3) & MASK
        hashes.append(f"{value:016x}")
    return hashes


def id_bytes(ids):
    """Ids as they are hashed: four bytes each, little-endian."""
    return b"".join(i.to_bytes(4, "little") for i in ids)


if __name__ == "__main__":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(sys.argv[1])
    first, number = int(sys.argv[2]), int(sys.argv[3])
    for raw in awkward_strings(first + number, 1)[first:]:
        encoding = tokenizer.encode(lossy(raw), add_special_tokens=False)
        print(json.dumps([raw.hex(), lossy(raw), encoding.ids, encoding.tokens], ensure_ascii=False))
