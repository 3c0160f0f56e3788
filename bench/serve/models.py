"""GPT-2 124M, as `atoll train` makes it in one step on made-up words, and adapters of it."""

import argparse
import pathlib
import random
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = ["--train.steps=1", "--train.context=32", "--train.batch_size=1", "--train.micro_batch=1",
            "--train.recompute=none", "--data.held_out=0", "--eval.every=0", "--log.tensorboard=false",
            "--optim.warmup_steps=0"]


def arguments(description, *, programs=False):
    """What all the programs here take; `description` is their docstring. `programs`: --atoll may be given again."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = ROOT / "build/release/bin/atoll"
    if programs:
        parser.add_argument("--atoll", type=pathlib.Path, action="append", help=f"several times; default: {built}")
    else:
        parser.add_argument("--atoll", type=pathlib.Path, default=built)
    parser.add_argument("--model", type=pathlib.Path, help="a model directory or run; default: GPT-2 124M is made")
    parser.add_argument("--dir", type=pathlib.Path, help="where to make what is needed, and find it again")
    parser.add_argument("--weights", default="f32")
    parser.add_argument("--rounds", type=int, default=5)
    return parser


def train(atoll, *words):
    done = subprocess.run([str(atoll), "train", *words, *SETTINGS],
                          cwd=ROOT, check=False, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"atoll train ended with {done.returncode}:\n{done.stderr}")


class Work:
    """A folder with a model, which is removed at the end unless the command line named one."""

    def __init__(self, args):
        self.args = args
        self.made = None if args.dir else tempfile.TemporaryDirectory(prefix="atoll-bench-serve-")
        self.folder = pathlib.Path(args.dir or self.made.name).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model = args.model or self._model()

    def _text(self):
        path = self.folder / "text.txt"
        if not path.exists():
            generator = random.Random(1)
            words = ["".join(generator.choices("etaoinshrdlucmfwypvbgkjqxz", k=generator.randint(4, 9)))
                     for _ in range(80_000)]
            path.write_text(" ".join(words * 3), encoding="utf-8")
        return path

    def _model(self):
        run = self.folder / "gpt2-124m"
        if not run.exists():
            train(self.args.atoll, str(ROOT / "recipes/gpt2-124m.toml"), f"--run.dir={run}",
                  f"--data.text={self._text()}")
        return run

    def adapters(self, count, rank):
        """Directories of so many adapters: the same numbers, but others for the server."""
        first = self.folder / f"adapter-{rank}-0"
        if not first.exists():
            train(self.args.atoll, f"--run.dir={first}", f"--data.text={self._text()}",
                  f"--model.from={self.model}", f"--lora.rank={rank}")
        directories = [first]
        for i in range(1, count):
            directories.append(self.folder / f"adapter-{rank}-{i}")
            if not directories[-1].exists():
                shutil.copytree(first, directories[-1])
        return directories


def prompts(count, length, seed):
    """Token ids of single bytes that nobody has sent before, so that no cache knows them."""
    draw = random.Random(seed)
    return [[draw.randrange(20, 220) for _ in range(length)] for _ in range(count)]
