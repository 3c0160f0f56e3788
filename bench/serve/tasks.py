#!/usr/bin/env python3
"""Times `atoll eval --task` on made-up questions, by one program or by several in turn.

    python3 bench/serve/tasks.py --dir build/bench-serve --rounds 3
    python3 bench/serve/tasks.py --dir build/bench-serve --atoll OLD --atoll build/release/bin/atoll

Four files: short questions with short choices (as ARC), longer ones (as HellaSwag), questions behind five examples
that all of them share, and answers to be written. The time is that of answering alone, as `atoll eval` prints it;
medians of the rounds. `apart` is the largest difference of a log-likelihood from the first program's, in nats.
"""

import json
import pathlib
import random
import re
import statistics
import subprocess

from models import ROOT, Work, arguments

WORDS = ("the sea is wide and a ring of islands lies there while boats come home at night with fish bread and stories "
         "that nobody had heard before").split()


def text(draw, count):
    return " ".join(draw.choice(WORDS) for _ in range(count))


def choices(draw, count, prompt, choice, shots=0):
    head = "".join(f"Question: {text(draw, prompt)}\nAnswer: {text(draw, choice)}\n\n" for _ in range(shots))
    return [{"prompt": f"{head}Question: {text(draw, prompt)}\nAnswer:", "answer": draw.randrange(4),
             "choices": [" " + text(draw, draw.randint(choice // 2 + 1, choice + choice // 2)) for _ in range(4)]}
            for _ in range(count)]


def write_tasks(folder, scale):
    draw = random.Random(3)
    tasks = {"short": choices(draw, 60 * scale, 18, 4), "long": choices(draw, 40 * scale, 30, 12),
             "five examples": choices(draw, 40 * scale, 12, 3, 5),
             "written": [{"prompt": text(draw, 40), "answer": "x"} for _ in range(16 * scale)]}
    paths = {}
    for name, rows in tasks.items():
        paths[name] = folder / f"task-{name.replace(' ', '-')}-{scale}.jsonl"
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return paths


def evaluate(atoll, model, weights, path, out):
    out.unlink(missing_ok=True)
    done = subprocess.run(
        [str(atoll), "eval", str(model), "--task", str(path), "--weights", weights, "--out", str(out),
         *(["--max-tokens", "32", "--stop", "\u2028"] if "written" in path.name else [])],
        check=False, text=True, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    seconds = float(re.search(r"in ([\d.]+) s", done.stdout).group(1))
    return seconds, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def apart(ours, theirs):
    """The largest difference of a score; of written answers, how many differ."""
    if "scores" not in ours[0]:
        return f"{sum(a['output'] != b['output'] for a, b in zip(ours, theirs))} of {len(ours)} differ"
    return f"{max(abs(x - y) for a, b in zip(ours, theirs) for x, y in zip(a['scores'], b['scores'])):.1e}"


def main():
    parser = arguments(__doc__, programs=True)
    parser.add_argument("--scale", type=int, default=1, help="times as many questions")
    args = parser.parse_args()
    programs = args.atoll or [ROOT / "build/release/bin/atoll"]
    args.atoll = programs[-1]
    work = Work(args)
    print(f"{args.weights} weights, {args.rounds} rounds")
    for name, path in write_tasks(work.folder, args.scale).items():
        seconds = {program: [] for program in programs}
        answers = {}
        for _ in range(args.rounds):
            for program in programs:
                took, answers[program] = evaluate(program, work.model, args.weights, path, work.folder / "out.jsonl")
                seconds[program].append(took)
        first = statistics.median(seconds[programs[0]])
        for program in programs:
            middle = statistics.median(seconds[program])
            print(f"  {name:<14} {len(answers[program]):4} questions  {middle:7.2f} s  {first / middle:5.2f} times  "
                  f"apart {apart(answers[programs[0]], answers[program])}  {pathlib.Path(program).name}")


main()
