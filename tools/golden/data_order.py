#!/usr/bin/env python3
"""The order of training samples as docs/data-order.md states it, written from that page alone.

    data_order.py SEED NUM_TOKENS CONTEXT FIRST COUNT   prints epoch, window, first token per sample
    data_order.py --known       prints src/atoll/data/sampler_known_values.inc
"""

import sys

MASK32 = 0xFFFFFFFF
PURPOSE_SHUFFLE = 2


def philox(counter, key):
    """Philox4x32-10: four 32-bit words from a counter of four and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = 0xD2511F53 * c0
        p1 = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0 = (k0 + 0x9E3779B9) & MASK32
        k1 = (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def words(value):
    """The low and the high 32 bits of a 64-bit value."""
    return value & MASK32, value >> 32


class Stream:
    """The random words named by (seed, purpose, a, b)."""

    def __init__(self, seed, purpose, a=0, b=0):
        first = philox((*words(purpose), *words(a)), words(seed))
        second = philox((*words(b), first[0], first[1]), (first[2], first[3]))
        self.key, self.salt = second[:2], second[2:]

    def block(self, i):
        return philox((*words(i), *self.salt), self.key)


def permute(stream, n, i):
    """Where i goes in the permutation of range(n) that `stream` keys."""
    h = 1
    while 1 << (2 * h) < n:
        h += 1
    mask = (1 << h) - 1
    while True:
        left, right = i >> h, i & mask
        for r in range(8):
            left, right = right, left ^ (stream.block((r << 32) + right)[0] & mask)
        i = (left << h) | right
        if i < n:
            return i


def sample(seed, num_tokens, context, index):
    """(epoch, window, first token) of a run's sample `index`."""
    n = max(1, (num_tokens - context) // context)
    offsets = min(context, num_tokens - n * context)
    epoch, place = divmod(index, n)
    stream = Stream(seed, PURPOSE_SHUFFLE, epoch)
    window = permute(stream, n, place)
    draw = stream.block(255 << 32)
    offset = (draw[0] + (draw[1] << 32)) % offsets
    return epoch, window, offset + window * context


def known_values():
    cases = [
        (0, 65, 64, [0, 1, 2]),
        (1, 1000, 64, [0, 1, 13, 14, 15, 100]),
        (1337, 1200000, 256, [0, 1, 2, 3, 4685, 4686, 4687, 123456]),
        (2**64 - 1, 10**12 + 7, 4096, [0, 1, 10**9, 10**13]),
    ]
    print("// Made by tools/golden/data_order.py --known: seed, tokens, context, sample; epoch,")
    print("// window, first token.")
    for seed, num_tokens, context, indices in cases:
        for index in indices:
            epoch, window, first = sample(seed, num_tokens, context, index)
            print(f"{{{seed}U, {num_tokens}, {context}, {index}, {epoch}, {window}, {first}}},")


def main(arguments):
    if arguments == ["--known"]:
        known_values()
        return
    if len(arguments) != 5:
        sys.exit(__doc__)
    seed, num_tokens, context, first, count = map(int, arguments)
    for index in range(first, first + count):
        print(index, *sample(seed, num_tokens, context, index))


if __name__ == "__main__":
    main(sys.argv[1:])
