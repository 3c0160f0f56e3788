#!/usr/bin/env python3
"""The order of training samples as docs/data-order.md states it, written from that page alone.

    data_order.py SEED NUM_TOKENS CONTEXT FIRST COUNT   prints epoch, window, first token per sample
    data_order.py --known       prints src/atoll/data/sampler_known_values.inc
    data_order.py --documents   prints src/atoll/data/document_known_values.inc
    data_order.py --mixture     prints src/atoll/data/mixture_known_values.inc
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


def pack(bounds, context, order):
    """Rows of segments (first token, size, whether a target follows) by next-fit."""
    rows, used = [], context
    for document in order:
        first, end = bounds[document], bounds[document + 1]
        while first < end:
            size = min(context, end - first)
            if used + size > context:
                rows.append([])
                used = 0
            rows[-1].append((first, size, first + size < end))
            used += size
            first += size
    return rows


def document_sample(seed, num_tokens, starts, context, index):
    """The segments of a run's sample `index` with packed documents."""
    bounds = sorted({0, *starts}) + [num_tokens]
    n = len(bounds) - 1
    epoch = 0
    while True:
        stream = Stream(seed, PURPOSE_SHUFFLE, epoch, 1)
        rows = pack(bounds, context, [permute(stream, n, place) for place in range(n)])
        if index < len(rows):
            return rows[permute(Stream(seed, PURPOSE_SHUFFLE, epoch, 2), len(rows), index)]
        index -= len(rows)
        epoch += 1


def mixture_sample(seed, weights, index):
    """(corpus, which of its samples) of a run's sample `index`."""
    begin, end, n = 0, len(weights), index
    while end - begin > 1:
        middle = (begin + end) // 2
        left, right = sum(weights[begin:middle]), sum(weights[middle:end])
        share = int(left / (left + right) * 2**62)
        draw = Stream(seed, PURPOSE_SHUFFLE, middle, 3).block(0)
        phase = (draw[0] + (draw[1] << 32)) >> 2
        before, after = ((k * share + phase) >> 62 for k in (n, n + 1))
        if after > before:
            end, n = middle, before
        else:
            begin, n = middle, n - before
    return begin, n


def braces(values):
    return "{" + ", ".join(map(str, values)) + "}"


def known_documents():
    cases = [
        (0, 10, [0], 4, [0, 1, 2, 3, 100]),
        (7, 60, [0, 5, 17, 20, 31, 33, 41, 50, 55], 16, [0, 1, 2, 3, 4, 5, 17, 40]),
        (2**64 - 1, 1000, [*range(0, 900, 7), 990], 32, [0, 1, 20, 34, 35, 36, 99]),
    ]
    print("// Made by tools/golden/data_order.py --documents: seed, tokens, document starts, context,")
    print("// sample; its segments: first token, size, whether a target follows.")
    print("// clang-format off")
    for seed, num_tokens, starts, context, indices in cases:
        for index in indices:
            row = document_sample(seed, num_tokens, starts, context, index)
            segments = braces(braces((a, b, str(c).lower())) for a, b, c in row)
            print(f"{{{seed}U, {num_tokens}, {braces(starts)}, {context}, {index}, {segments}}},")
    print("// clang-format on")


def known_mixtures():
    cases = [
        (0, [1, 1], [0, 1, 2, 3]),
        (9, [0.2, 0.3, 0.5], [0, 1, 2, 3, 4, 5, 1000, 10**15]),
        (2**64 - 1, [3, 1, 4, 1, 5, 9, 2], [0, 1, 2, 12345, 2**62]),
    ]
    print("// Made by tools/golden/data_order.py --mixture: seed, weights, sample; corpus, its sample.")
    for seed, weights, indices in cases:
        for index in indices:
            part, sample = mixture_sample(seed, weights, index)
            print(f"{{{seed}U, {braces(weights)}, {index}, {part}, {sample}}},")


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
    tables = {
        "--known": known_values, "--documents": known_documents, "--mixture": known_mixtures
    }
    if len(arguments) == 1 and arguments[0] in tables:
        tables[arguments[0]]()
        return
    if len(arguments) != 5:
        sys.exit(__doc__)
    seed, num_tokens, context, first, count = map(int, arguments)
    for index in range(first, first + count):
        print(index, *sample(seed, num_tokens, context, index))


if __name__ == "__main__":
    main(sys.argv[1:])
