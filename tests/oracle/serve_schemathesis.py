"""Sends `atoll serve` what Schemathesis makes of its own /openapi.json: requests that follow the document and
requests that break it.

    python3 serve_schemathesis.py ATOLL DIR [--cases N] [--seed S]    # the program, and a folder to work in

A crash, a status of 500 or more, an answer that the document does not allow, and an accepted request that it
forbids fail. So does a model that is left busy, or that answers otherwise than before. Makes a small model of
its own text first. Requests that the document allows and the server refuses are counted only: a document cannot
say all that is checked.
"""

import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys
import time

import hypothesis
import requests
import schemathesis
from schemathesis import GenerationMode, checks
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import Failure, FailureGroup

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection",
)
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
TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
SCHEMA = {"type": "array", "items": {"enum": [1, "é"]}}
SEEN = {"prompt": "the sea", "max_tokens": 40, "seed": 7, "temperature": 1, "logprobs": 3}


def line(state, what):
    print(f"{state:<7} serve_schemathesis: {what}", flush=True)


def make_model(atoll, folder):
    words = "the sea is wide and a ring of islands lies there { } [ ] : , \" 1 2 3 é 漢 😀".split()
    draw = random.Random(1)
    text = "".join(draw.choice(words) + draw.choice([" ", " ", " ", ".\n"]) for _ in range(8000))
    (folder / "text.txt").write_text(text)
    (folder / "chat.jinja").write_text(TEMPLATE)
    (folder / "recipe.toml").write_text(RECIPE.format(folder))
    subprocess.run([atoll, "train", folder / "recipe.toml"], check=True, capture_output=True)


class Server:
    """`atoll serve` on a free port."""

    def __init__(self, atoll, folder):
        self.process = subprocess.Popen(
            [atoll, "serve", folder / "run", "--port", "0", "--model-name", "run",
             "--chat-template", folder / "chat.jinja"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for text in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", text):
                self.url = found.group(0)
                return
        sys.exit("error: the server ended")

    def get(self, path):
        return requests.get(self.url + path, timeout=10)

    def answer(self):
        return requests.post(self.url + "/v1/completions", json=SEEN, timeout=60).json()["choices"]

    def end(self):
        self.process.terminate()
        return self.process.wait(60)


def steer(body, draw):
    """Of a body that the document allows, what hardly any random body has right: so that answers are made."""
    if not isinstance(body, dict):
        return
    if body.get("model") is not None:
        body["model"] = "run"
    if body.get("messages"):
        body["messages"] = [
            {"role": draw.choice(["system", "user", "assistant"]),
             "content": draw.choice(["", "the sea", "漢 😀\0", [{"type": "text", "text": "a ring"}]])}
            for _ in body["messages"]]
    for name in ("tools", "tool_choice", "modalities", "grammar", "stop_token_ids", "logit_bias", "best_of", "suffix"):
        if draw.random() < 0.8:
            body.pop(name, None)
    if body.get("regex") is not None:
        body["regex"] = draw.choice(["[a-z]{1,20}", "(the|sea)* 漢", "\\d+"])
    if body.get("response_format") is not None:
        body.pop("regex", None)
        body["response_format"] = draw.choice([
            {"type": "text"}, {"type": "json_object"},
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}])
    for name in ("prompt", "input"):
        if isinstance(body.get(name), list) and draw.random() < 0.5:
            body[name] = [draw.randrange(300) for _ in body[name]]
    if isinstance(body.get("tokens"), list):
        body["tokens"] = [draw.randrange(300) for _ in body["tokens"]]


class Tally:
    """What came of the cases: the first of each kind of failure, and how many there were."""

    def __init__(self):
        self.failures = {}
        self.counts = collections.Counter()
        self.statuses = collections.Counter()

    def add(self, where, failure, case):
        kind = (where, type(failure).__name__, str(failure.title))
        self.counts[kind] += 1
        if kind not in self.failures:
            body = repr(case.body)
            self.failures[kind] = " ".join(f"{failure.message}".split())[:300] + f" [body {body[:300]}]"


def send(server, operation, mode, cases, seed, tally):
    """As many requests of one kind to one route."""
    chosen = [checks.CHECKS.get_one(name) for name in CHECKS]
    session = requests.Session()
    draw = random.Random(seed)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases, deadline=None, database=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck), verbosity=hypothesis.Verbosity.quiet)
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def one(case):
        where = f"{operation.method.upper()} {operation.path}"
        if mode == GenerationMode.POSITIVE and draw.random() < 0.7:
            steer(case.body, draw)
        try:
            response = case.call(base_url=server.url, session=session, timeout=30)
        except requests.exceptions.RequestException as error:
            tally.counts[(where, "no answer", type(error).__name__)] += 1
            tally.failures.setdefault(
                (where, "no answer", type(error).__name__), f"{error} [body {case.body!r:.300}]")
            session.close()
            return
        tally.statuses[(mode.value, response.status_code)] += 1
        try:
            case.validate_response(response, checks=chosen)
        except FailureGroup as group:
            for failure in group.exceptions:
                tally.add(where, failure, case)
        except Failure as failure:
            tally.add(where, failure, case)

    one()


def is_idle(server):
    for _ in range(100):
        page = server.get("/metrics").text
        held = re.findall(
            r'^(atoll_requests_running|atoll_requests_waiting|atoll_cache_blocks_used{by="running"}) (\d+)$', page, re.M)
        if len(held) == 3 and all(number == "0" for _, number in held):
            return True
        time.sleep(0.1)
    return False


def main():
    options = argparse.ArgumentParser()
    options.add_argument("atoll", type=pathlib.Path)
    options.add_argument("dir", type=pathlib.Path)
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    folder = given.dir.resolve() / "serve_schemathesis"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "run" / "checkpoints").exists():
        make_model(given.atoll.resolve(), folder)
    load_all_checks()
    server = Server(given.atoll.resolve(), folder)
    before = server.answer()
    document = server.get("/openapi.json").json()
    document.pop("security")  # this server asks for no key
    schema = schemathesis.openapi.from_dict(document)
    operations = [result.ok() for result in schema.get_all_operations()]
    # Routes without fields have few cases; those with a body get the rest, broken and whole alike.
    with_body = [operation for operation in operations if operation.body]
    few = max(given.cases // 200, 1)
    share = max((given.cases - few * (len(operations) - len(with_body))) // (2 * len(with_body)), 1)
    failed = False
    total = collections.Counter()
    for operation in operations:
        tally = Tally()
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) if operation.body else (GenerationMode.POSITIVE,)
        for mode in modes:
            send(server, operation, mode, share if operation.body else few, given.seed, tally)
        for kind, what in tally.failures.items():
            line("FAILED", f"{' '.join(kind[:2])}: {tally.counts[kind]} times: {kind[2]}: {what}")
        told = ", ".join(f"{mode} {status}: {n}" for (mode, status), n in sorted(tally.statuses.items()))
        failed = failed or bool(tally.failures)
        if not tally.failures:
            line("ok", f"{operation.method.upper()} {operation.path}: {told}")
        total.update(tally.statuses)
        if server.process.poll() is not None:
            line("FAILED", f"the server ended with exit code {server.process.returncode}")
            sys.exit(1)
    for what, is_so in (
        ("nothing is left running", is_idle(server)),
        ("the same answer as before", server.answer() == before),
        ("exit code 0", server.end() == 0),
    ):
        failed = failed or not is_so
        line("ok" if is_so else "FAILED", what)
    line("FAILED" if failed else "ok", f"{sum(total.values())} cases")
    sys.exit(failed)


main()
