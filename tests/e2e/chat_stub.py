"""A small stand-in for `atoll serve`: the files of the chat page, and as much of the API as the page asks for.

What a request gets is chosen by words of its last message or prompt: "busy", "refused", "broken off", "error within", "slowly",
"reasoning", "think tags", "markup", "long"; else ANSWER. `requests` keeps what was asked; `gate` holds slow answers up."""

import http.server
import json
import os
import threading

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "atoll", "serve", "page")
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

ANSWER = """An **atoll** is a ring of coral around a lagoon. Two things make one:

1. A volcano sinks slowly into the sea.
2. Coral grows upwards, *as fast as it sinks*.

| place | islands |
|:--|--:|
| Suvadiva | 247 |
| Rangiroa | 415 |

```python
def depth(years, rate=0.0001):
    return years * rate
```

More is at https://example.org/atolls."""
MARKUP = """<img src=x onerror="window.evil=1"><script>window.evil=1</script>

[click](javascript:window.evil=1) [data](data:text/html,hi) ![picture](http://127.0.0.1:1/spy.png)

```<b onmouseover=window.evil=1>
<script>window.evil=1</script>
```

| <iframe src=x> | b |
|---|---|
| `<svg onload=window.evil=1>` | [ok](https://example.org/"onclick="window.evil=1) |"""
MODELS = [{"id": "reef-135m", "atoll": {"chat": True, "max_tokens": 4096}}, {"id": "reef-base", "atoll": {"chat": False, "max_tokens": 2048}}]


def pieces(text):
    """About as tokens would cut it."""
    out = []
    for i, word in enumerate(text.split(" ")):
        out.append(word if i == 0 else " " + word)
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, kind, body, **fields):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def json(self, status, value, **fields):
        self.answer(status, "application/json", json.dumps(value).encode(), **fields)

    def refuse(self, status, message, **fields):
        self.json(status, {"error": {"message": message, "type": "invalid_request_error"}}, **fields)

    def is_known(self):
        return not self.server.stub.key or self.headers.get("Authorization") == f"Bearer {self.server.stub.key}"

    def do_GET(self):
        if self.path == "/v1/models":
            self.json(200, {"object": "list", "data": MODELS}) if self.is_known() else self.refuse(401, "this server wants a key")
            return
        path = os.path.join(PAGE, {"/": "index.html", "/favicon.ico": "icon.svg"}.get(self.path.split("?")[0], os.path.basename(self.path)))
        if not os.path.isfile(path):
            self.answer(404, "text/plain", b"there is no such page")
            return
        with open(path, "rb") as file:
            self.answer(200, TYPES[os.path.splitext(path)[1]], file.read())

    def do_POST(self):
        stub = self.server.stub
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_known():
            self.refuse(401, "this server wants a key")
            return
        stub.requests.append({"path": self.path, **body})
        last = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        if "busy" in last and stub.busy > 0:
            stub.busy -= 1
            self.refuse(429, "all places are taken", Retry_After=stub.retry_after)
        elif "refused" in last:
            self.refuse(400, "temperature 9 is too high")
        else:
            try:
                self.stream(body, last)
            except OSError:
                stub.cut.set()

    def stream(self, body, last):
        is_chat, stub = "messages" in body, self.server.stub
        self.answer(200, "text/event-stream", b": hello\n\n")

        def send(value):
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

        def piece(text, name="content"):
            choice = {"index": 0, "finish_reason": None, **({"delta": {name: text}} if is_chat else {"text": text})}
            send({"id": "x", "model": body["model"], "choices": [choice]})

        if is_chat:
            piece("", "role")
        text = next((text for word, text in stub.answers if word in last), ANSWER) if is_chat else " and the sea came back."
        if "reasoning" in last:
            for word in pieces("The user wants me to think."):
                piece(word, "reasoning_content")
        words = pieces(text)
        for i, word in enumerate(words):
            if i == 3 and "slowly" in last:
                while not stub.gate.wait(.05):  # until the test opens it, or nobody reads
                    self.wfile.write(b": wait\n\n")
            if i == 3 and "broken off" in last:
                return
            if i == 3 and "error within" in last:
                send({"error": {"message": "the engine has ended", "type": "server_error"}})
                return
            piece(word)
            stub.pause.wait(stub.between_s)
        end = {"index": 0, "finish_reason": "length" if "long" in last else "stop", **({"delta": {}} if is_chat else {"text": ""})}
        send({"id": "x", "choices": [end]})
        if body.get("stream_options", {}).get("include_usage"):
            send({"id": "x", "choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": len(words), "total_tokens": 21 + len(words)}})
        self.wfile.write(b"data: [DONE]\n\n")


class Stub:
    """A running server; `with Stub() as stub` ends it."""

    def __init__(self, key=""):
        self.key, self.busy, self.retry_after, self.between_s = key, 0, "1", 0
        self.requests, self.gate, self.cut, self.pause = [], threading.Event(), threading.Event(), threading.Event()
        self.answers = [("markup", MARKUP), ("think tags", "<think>\nIs it **deep**?\n</think>\n\nIt is deep."), ("reasoning", "It is wide.")]
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.stub = self
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
