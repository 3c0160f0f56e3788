"""Asks `atoll serve` by EleutherAI's lm-evaluation-harness (`local-completions`), and compares with `atoll eval --task`.

    python3 lm_eval_scores.py ATOLL DIR    # the program, and a folder to work in

Both answer the same questions with the same small model, which is made first. The log-likelihoods of all choices
must be within 1e-5, shares of right answers equal, and written answers the same.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import lm_eval
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.openai_completions import LocalCompletionsAPI

TOLERANCE = 1e-5
WORDS = "the sea is wide and a ring of islands lies there while boats come home with fish and bread".split()
RECIPE = """
[run]
dir = "{0}/run"
[model]
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
text = ["{0}/text.txt"]
vocab_size = 400
[train]
steps = 30
batch_size = 4
micro_batch = 4
context = 512
[optim]
lr = 0.01
"""

failed = False


def check(good, what, detail=""):
    global failed
    failed |= not good
    print(f"{'ok' if good else 'FAILED':<7} lm_eval_scores: {what}{'' if good else ': ' + detail}", flush=True)


def text_of(draw, count):
    return " ".join(draw.choice(WORDS) for _ in range(count))


def make_model(atoll, folder):
    draw = random.Random(1)
    (folder / "text.txt").write_text("".join(text_of(draw, draw.randrange(4, 12)) + ".\n" for _ in range(1500)))
    (folder / "recipe.toml").write_text(RECIPE.format(folder))
    subprocess.run([atoll, "train", folder / "recipe.toml"], check=True, capture_output=True)
    subprocess.run([atoll, "export", folder / "run", "--out", folder / "hf"], check=True, capture_output=True)
    return folder / "run"


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_choices(draw, shots):
    """Choices of different lengths behind prompts that may share their examples."""
    head = "".join(f"Question: {text_of(draw, 6)}\nAnswer: {text_of(draw, 2)}\n\n" for _ in range(shots))
    rows = []
    for _ in range(24):
        choices = [text_of(draw, draw.randrange(1, 9)) for _ in range(4)]
        rows.append({"prompt": f"{head}Question: {text_of(draw, draw.randrange(1, 30))}\nAnswer:",
                     "choices": [" " + choice for choice in choices], "answer": draw.randrange(4),
                     "bare": choices})  # the harness puts the space there itself
    return rows


def make_texts(draw):
    return [{"prompt": text_of(draw, draw.randrange(2, 20)), "answer": "the sea"} for _ in range(12)]


class Server:
    """`atoll serve` on a free port."""

    def __init__(self, atoll, model):
        self.process = subprocess.Popen([atoll, "serve", model, "--port", "0", "--model-name", "run"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = re.search(r"http://127\.0\.0\.1:\d+", self.process.stdout.readline())
        if not found:
            sys.exit("error: the server has ended")
        self.url = found.group(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def by_atoll(atoll, model, task, out, *more):
    subprocess.run([atoll, "eval", model, "--task", task, "--out", out, *more], check=True, capture_output=True)
    return [json.loads(line) for line in out.read_text().splitlines()]


def by_harness(server, tokenizer, task, config):
    """The harness's samples, in the order of the rows, and its means."""
    model = LocalCompletionsAPI(base_url=server.url + "/v1/completions", model="run", tokenizer=str(tokenizer),
                                tokenizer_backend="huggingface", num_concurrent=4, max_length=512, max_retries=1)
    made = ConfigurableTask(config={
        "task": task.stem, "dataset_path": "json", "dataset_kwargs": {"data_files": str(task)},
        "test_split": "train", "doc_to_text": "{{prompt}}", "target_delimiter": " ", **config})
    found = lm_eval.simple_evaluate(model=model, tasks=[made], log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"][task.stem], key=lambda sample: sample["doc_id"])
    return samples, found["results"][task.stem]


def compare_choices(server, atoll, model, folder, task):
    ours = by_atoll(atoll, model, task, folder / f"{task.stem}-out.jsonl")
    theirs, means = by_harness(server, folder / "hf", task, {
        "output_type": "multiple_choice", "doc_to_choice": "bare", "doc_to_target": "answer",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]})
    largest, at = 0, ""
    for line, sample in zip(ours, theirs, strict=True):
        for mine, (other, _greedy) in zip(line["scores"], sample["filtered_resps"], strict=True):
            if abs(mine - other) >= largest:
                largest, at = abs(mine - other), f"line {line['line']}: {mine} and {other}"
    check(largest <= TOLERANCE, f"{task.stem}: log-likelihoods of {sum(len(line['scores']) for line in ours)} choices, "
          f"at most {largest:.1e} apart", at)
    for name, key in (("acc", "correct"), ("acc_norm", "correct_norm")):
        mine = sum(line[key] for line in ours) / len(ours)
        check(abs(mine - means[f"{name},none"]) < 1e-12, f"{task.stem}: {name} {mine:.4f}", f"{means[f'{name},none']}")


def compare_texts(server, atoll, model, folder, task):
    ours = by_atoll(atoll, model, task, folder / f"{task.stem}-out.jsonl", "--max-tokens", "30")
    theirs, _means = by_harness(server, folder / "hf", task, {
        "output_type": "generate_until", "doc_to_target": "answer", "metric_list": [{"metric": "exact_match"}],
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 30, "temperature": 0}})
    different = [(line["output"], sample["resps"][0][0]) for line, sample in zip(ours, theirs, strict=True)
                 if line["output"] != sample["resps"][0][0]]
    check(not different, f"{task.stem}: {len(ours)} written answers", str(different[:1]))


def main():
    atoll, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(atoll, folder)
    draw = random.Random(2)
    tasks = {"plain": make_choices(draw, 0), "shots": make_choices(draw, 4), "texts": make_texts(draw)}
    for name, rows in tasks.items():
        write_rows(folder / f"{name}.jsonl", rows)
        (folder / f"{name}-out.jsonl").unlink(missing_ok=True)
    with Server(atoll, model) as server:
        compare_choices(server, atoll, model, folder, folder / "plain.jsonl")
        compare_choices(server, atoll, model, folder, folder / "shots.jsonl")
        compare_texts(server, atoll, model, folder, folder / "texts.jsonl")
    sys.exit(1 if failed else 0)


main()
