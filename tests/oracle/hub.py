"""Shares a cache between atoll and huggingface_hub, both of which ask the same server.

    python3 -m venv venv && venv/bin/pip install -r tests/oracle/requirements.txt
    venv/bin/python tests/oracle/hub.py build/release/bin/atoll WORK_DIRECTORY

The server is the one of atoll's own tests (tests/hub_client/hub_server.h). What one of the two has
got, the other finds: no byte of a file comes a second time, and nothing in the cache changes. Each
also finds the other's cache whole without a network, and patterns choose the same files.
"""

import json
import os
import random
import shutil
import subprocess
import sys

from reference.checks import Checks, arguments, expect

CLIENT = """
import json, sys
import huggingface_hub as hub
kind, repo, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
print(hub.snapshot_download(repo, repo_type=kind, **options))
"""


class Server:
    """The server, and which bytes of files it has sent."""

    def __init__(self, program, root):
        self.process = subprocess.Popen([program, root], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    def take_bytes(self):
        """Bytes of files since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        size = 0
        for line in self.process.stdout:
            if line == "mark\n":
                return size
            _, target, sent = line.split()
            size += 0 if target.startswith("/api/") else int(sent)
        raise RuntimeError("the server has ended")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def write_repositories(root):
    """A model with two pages of files and a data set, of bytes that are always the same."""
    rng = random.Random(3)
    model, data = root / "models/org/tiny", root / "datasets/org/texts"
    for directory in (model / "sub", data / "data"):
        directory.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))
    (model / "tokenizer.json").write_text("{}")
    (model / "generation_config.json").write_text("{}")
    (model / "README.md").write_text("é\n" * 1000)
    (model / "model.safetensors").write_bytes(rng.randbytes(300_000))
    (model / "sub/other.json").write_text("[1]")
    (model / "sub/empty.txt").write_text("")
    (data / "data/train.jsonl").write_text('{"text": "one"}\n' * 5000)
    (data / "data/test.txt").write_text("two\n" * 10)
    (data / "README.md").write_text("texts")


def cache_state(cache):
    """What is in a cache, links as links; without lock files and marks that either makes."""
    state = {}
    for path in sorted(cache.rglob("*")):
        name = str(path.relative_to(cache))
        if name.startswith(".locks") or ".no_exist" in name or "/trees" in name:
            continue
        if path.is_symlink():
            state[name] = "-> " + os.readlink(path)
        elif path.is_file() and path.name != "CACHEDIR.TAG":
            state[name] = path.read_bytes()
    return state


def main():
    checks = Checks("hub")
    checks.require("huggingface_hub")
    atoll, work = arguments("hub")
    write_repositories(work / "served")
    server = Server(atoll.parent.parent / "tests/hub_server", work / "served")

    def check(name, holds):
        checks.run(name, lambda: expect(holds, "they differ"))

    def environment(cache, offline=False):
        variables = {key: value for key, value in os.environ.items()
                     if not key.startswith("HF_") and "proxy" not in key.lower()}
        return {**variables, "HF_ENDPOINT": server.endpoint, "HF_HOME": str(work / "home"),
                "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_XET": "1",
                "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
                "HF_HUB_OFFLINE": str(int(offline))}

    def run(command, cache, offline):
        result = subprocess.run(command, env=environment(cache, offline), capture_output=True,
                                text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{command}: {result.stderr}")
        return result.stdout.strip().splitlines()[-1]

    def by_atoll(name, cache, *options, offline=False):
        return run([atoll, "get", name, "--print-path", *options], cache, offline)

    def by_client(kind, repo, cache, offline=False, **options):
        return run([sys.executable, "-c", CLIENT, kind, repo, json.dumps(options)], cache, offline)

    for kind, repo, name in (("model", "org/tiny", "org/tiny"),
                             ("dataset", "org/texts", "hf://datasets/org/texts")):
        ours, theirs = work / f"{kind}-ours", work / f"{kind}-theirs"
        path = by_atoll(name, ours, "--all")
        sent = server.take_bytes()
        state = cache_state(ours)
        same = by_client(kind, repo, ours) == path
        check(f"{kind}: huggingface_hub finds what atoll got",
              same and server.take_bytes() == 0 and cache_state(ours) == state and sent > 0)
        check(f"{kind}: and without a network",
              by_client(kind, repo, ours, offline=True) == path)
        path = by_client(kind, repo, theirs)
        check(f"{kind}: both caches are the same, file by file and link by link",
              server.take_bytes() == sent and cache_state(theirs) == state)
        same = by_atoll(name, theirs, "--all") == path
        check(f"{kind}: atoll finds what huggingface_hub got",
              same and server.take_bytes() == 0 and cache_state(theirs) == state)
        check(f"{kind}: and without a network",
              by_atoll(name, theirs, "--all", offline=True) == path)

    for include, exclude in ((["*.json"], []), (["sub/"], []), ([], ["*.md", "sub/*"]),
                             (["*o*"], ["*.safetensors"])):
        ours, theirs = work / "some-ours", work / "some-theirs"
        for cache in (ours, theirs):
            shutil.rmtree(cache, ignore_errors=True)
        options = [word for pattern in include for word in ("--include", pattern)]
        options += [word for pattern in exclude for word in ("--exclude", pattern)]
        by_atoll("org/tiny", ours, *options, *([] if include else ["--all"]))
        by_client("model", "org/tiny", theirs, allow_patterns=include or None,
                  ignore_patterns=exclude or None)
        check(f"patterns {include} without {exclude} choose the same files",
              cache_state(ours) == cache_state(theirs))
    server.end()
    checks.finish()


if __name__ == "__main__":
    main()
