"""Asks `atoll serve` by OpenAI's own Python client: what it cannot read, or gets otherwise than asked, fails.

    python3 openai_client.py ATOLL DIR    # the program, and a folder to work in

Makes a small model of its own text first.
"""

import json
import pathlib
import random
import re
import subprocess
import sys

import openai

TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
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


def line(state, what):
    print(f"{state:<7} openai_client: {what}", flush=True)


def make_model(atoll, folder):
    words = "the sea is wide and a ring of islands lies there { } [ ] : , \" 1 2 3 é 漢 😀".split()
    draw = random.Random(1)
    text = "".join(draw.choice(words) + draw.choice([" ", " ", " ", ".\n"]) for _ in range(8000))
    (folder / "text.txt").write_text(text)
    (folder / "chat.jinja").write_text(TEMPLATE)
    (folder / "recipe.toml").write_text(RECIPE.format(folder))
    subprocess.run([atoll, "train", folder / "recipe.toml"], check=True, capture_output=True)
    return folder / "run"


class Server:
    """`atoll serve` on a free port, with the lines that it has written."""

    def __init__(self, atoll, model, *more):
        self.process = subprocess.Popen(
            [atoll, "serve", model, "--port", "0", "--model-name", "run", "--chat-template", model.parent / "chat.jinja", *more],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.lines = []
        for text in self.process.stdout:
            self.lines.append(text)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
            if found:
                self.url = found.group(0)
                break
        else:
            sys.exit("error: the server ended: " + "".join(self.lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait(60)
        assert code == 0, f"exit code {code}: {''.join(self.lines)}"


def refused(call, status, param=None):
    try:
        call()
    except openai.APIStatusError as error:
        assert error.status_code == status, f"status {error.status_code}, not {status}: {error}"
        if param is not None:
            assert error.body["param"] == param, f"param {error.body['param']}, not {param}"
        return
    raise AssertionError(f"was not refused with {status}")


def models(client):
    names = [model.id for model in client.models.list()]
    assert len(names) == 1
    assert client.models.retrieve(names[0]).id == names[0]
    refused(lambda: client.models.retrieve("another"), 404)


def chat(client):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the sea"}]
    answer = client.chat.completions.create(model="run", messages=said, max_tokens=20, seed=3)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert answer.usage.completion_tokens <= 20
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    again = client.chat.completions.create(model="run", messages=said, max_tokens=20, seed=3)
    assert again.choices[0].message.content == choice.message.content
    parts = [{"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}]}]
    client.chat.completions.create(model="run", messages=parts, max_completion_tokens=2)


def streams(client):
    said = [{"role": "user", "content": "the sea 漢 😀"}]
    for seed in range(20):
        options = dict(model="run", messages=said, max_tokens=40, seed=seed, temperature=1.3)
        whole = client.chat.completions.create(**options)
        text, roles, ends, usage, ids = "", [], [], None, set()
        for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
            ids.add(chunk.id)
            if not chunk.choices:
                usage = chunk.usage
                continue
            assert not ends, "a choice after its end"
            delta = chunk.choices[0].delta
            if delta.role:
                roles.append(delta.role)
            text += delta.content or ""
            if chunk.choices[0].finish_reason is not None:
                ends.append(chunk.choices[0].finish_reason)
        assert text == whole.choices[0].message.content, (text, whole)
        assert roles == ["assistant"] and ends == [whole.choices[0].finish_reason] and len(ids) == 1
        assert usage.completion_tokens == whole.usage.completion_tokens


def stops(client):
    options = dict(model="run", prompt="the sea", max_tokens=60, seed=5, temperature=1)
    free = client.completions.create(**options).choices[0].text
    stop = free[11:14]
    cut = client.completions.create(**options, stop=[stop, "never seen"]).choices[0]
    assert cut.text == free[: free.index(stop)] and cut.finish_reason == "stop"
    streamed = "".join(c.choices[0].text for c in client.completions.create(**options, stop=stop, stream=True))
    assert streamed == cut.text


def logprobs(client):
    answer = client.chat.completions.create(
        model="run", messages=[{"role": "user", "content": "the"}], max_tokens=8, logprobs=True, top_logprobs=4,
        temperature=0)
    for entry in answer.choices[0].logprobs.content:
        assert len(entry.top_logprobs) == 4 and entry.logprob <= 0
        assert entry.token == entry.top_logprobs[0].token and bytes(entry.bytes) is not None
    scored = client.completions.create(model="run", prompt="the sea is wide", max_tokens=0, echo=True, logprobs=1)
    told = scored.choices[0].logprobs
    assert told.token_logprobs[0] is None and all(p <= 0 for p in told.token_logprobs[1:])
    assert "".join(told.tokens) == "the sea is wide" == scored.choices[0].text


def many(client):
    answer = client.completions.create(model="run", prompt=["the", "a ring"], n=3, max_tokens=10, temperature=1)
    assert sorted(choice.index for choice in answer.choices) == list(range(6))
    assert len({choice.text for choice in answer.choices}) > 1
    tokens = client.post("/../tokenize", body={"prompt": "the sea"}, cast_to=object)["tokens"]
    by_ids = client.completions.create(model="run", prompt=tokens, max_tokens=9, seed=1)
    by_text = client.completions.create(model="run", prompt="the sea", max_tokens=9, seed=1)
    assert by_ids.choices[0].text == by_text.choices[0].text


def forms(client):
    schema = {
        "type": "object", "additionalProperties": False, "required": ["name", "size"],
        "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"type": "integer", "minimum": 0, "maximum": 99}},
    }
    for seed in range(10):
        answer = client.chat.completions.create(
            model="run", messages=[{"role": "user", "content": "the"}], max_tokens=120, seed=seed, temperature=1,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
        value = json.loads(answer.choices[0].message.content)
        assert set(value) == {"name", "size"} and 0 <= value["size"] <= 99 and len(value["name"]) <= 8
    answer = client.completions.create(model="run", prompt="a", max_tokens=30, extra_body={"regex": "[0-9]{3}-(sea|ring)"})
    assert re.fullmatch("[0-9]{3}-(sea|ring)", answer.choices[0].text), answer.choices[0].text
    answer = client.completions.create(model="run", prompt="a", max_tokens=30, extra_body={"grammar": 'root ::= "x" [yz]{2}'})
    assert re.fullmatch("x[yz]{2}", answer.choices[0].text)
    refused(lambda: client.chat.completions.create(
        model="run", messages=[{"role": "user", "content": "x"}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer", "multipleOf": 7}}}),
        400, "response_format")


def tools(client):
    tool = {"type": "function", "function": {
        "name": "look", "description": "Looks.", "parameters": {
            "type": "object", "properties": {"where": {"enum": ["sea", "ring"]}}, "required": ["where"],
            "additionalProperties": False}}}
    answer = client.chat.completions.create(
        model="run", messages=[{"role": "user", "content": "look"}], tools=[tool], max_tokens=10)
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


def embeddings(client):
    answer = client.embeddings.create(model="run", input=["the sea", "the sea", "a ring"])
    a, b, c = (item.embedding for item in answer.data)
    assert a == b and a != c and len(a) == 64 and answer.usage.prompt_tokens > 0


def refusals(client):
    said = [{"role": "user", "content": "x"}]
    create = client.chat.completions.create
    refused(lambda: create(model="run", messages=said, temperature=-1), 400, "temperature")
    refused(lambda: create(model="run", messages=said, top_p=2), 400, "top_p")
    refused(lambda: create(model="run", messages=[]), 400, "messages")
    refused(lambda: create(model="run", messages=said, extra_body={"colour": 1}), 400, "colour")
    refused(lambda: create(model="other", messages=said), 404)
    refused(lambda: client.completions.create(model="run", prompt="the sea " * 2000, max_tokens=1), 400, "prompt")


def main():
    atoll, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "openai_client"
    folder.mkdir(parents=True, exist_ok=True)
    run = make_model(atoll, folder) if not (folder / "run" / "checkpoints").exists() else folder / "run"
    failed = False
    key = folder / "keys"
    key.write_text("0123456789abcdef\n")
    key.chmod(0o600)
    with Server(atoll, run, "--api-key-file", key) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="0123456789abcdef", max_retries=0)
        refused(openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list, 401)
        for check in (models, chat, streams, stops, logprobs, many, forms, tools, embeddings, refusals):
            try:
                check(client)
                line("ok", check.__name__)
            except Exception as error:
                failed = True
                line("FAILED", f"{check.__name__}: {type(error).__name__}: {error}")
    sys.exit(failed)


main()
