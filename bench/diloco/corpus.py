"""The corpora of bench/diloco: one text, cut into what is trained on and what is held out.

Every twentieth block of fifty verses is held out, so that all books are in either. Islands with
private data get consecutive parts of what is trained on, other books each, or, to compare with, shares
of every book.
"""

import subprocess

VOCABULARY = 2048
VERSES_A_BLOCK = 50
EVERY = 20


def split(text):
    """Lines to train on, and lines that are held out."""
    trained, held = [], []
    with open(text, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            is_held = number // VERSES_A_BLOCK % EVERY == EVERY - 1
            (held if is_held else trained).append(line)
    return trained, held


def parts(lines, count):
    """So many consecutive parts of about equally many characters."""
    total = sum(map(len, lines))
    result, begin, seen = [], 0, 0
    for number, line in enumerate(lines, 1):
        seen += len(line)
        if seen * count >= total * (len(result) + 1):
            result.append(lines[begin:number])
            begin = number
    return result


def shares(lines, count):
    """So many shares, each of every so-manieth block of verses."""
    result = [[] for _ in range(count)]
    for number, line in enumerate(lines):
        result[number // VERSES_A_BLOCK % count].append(line)
    return result


def write(path, lines):
    path.write_text("".join(lines), encoding="utf-8")
    return path


def tokenize(atoll, text, out, words):
    subprocess.run([atoll, "tokenize", text, "--out", out, "--held-out", "0", *words], check=True,
                   stdout=subprocess.DEVNULL)


def prepare(atoll, text, work, private_counts):
    """Makes held.txt, shards/all, shards/part-I-of-N and shards/share-I-of-N below `work`, where
    they are missing."""
    done = work / "prepared"
    if done.exists():
        return
    (work / "shards").mkdir(parents=True, exist_ok=True)
    trained, held = split(text)
    write(work / "held.txt", held)
    everything = work / "shards" / "all"
    tokenize(atoll, write(work / "all.txt", trained), everything,
             ["--vocab-size", str(VOCABULARY), "--overwrite"])
    for count in private_counts:
        for what, cut in (("part", parts), ("share", shares)):
            for number, lines in enumerate(cut(trained, count), 1):
                name = f"{what}-{number}-of-{count}"
                tokenize(atoll, write(work / f"{name}.txt", lines), work / "shards" / name,
                         ["--tokenizer", str(everything), "--overwrite"])
    done.touch()
