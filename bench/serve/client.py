"""Starts `atoll serve`, and asks it for streams with nothing but the standard library."""

import asyncio
import json
import re
import subprocess
import time
import urllib.request


class Server:
    """`atoll serve MODEL` on a free port, until the `with` ends."""

    def __init__(self, atoll, model, *options, wait=True):
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [str(atoll), "serve", str(model), "--port", "0", "--model-name", "base", *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = None
        if wait:
            line = self.process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not found:
                raise SystemExit(f"the server ended: {line}{self.process.stderr.read()}")
            self.port = int(found.group(1))
            self.ready_s = time.perf_counter() - self.began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(120)

    def metrics(self):
        """Sums of /metrics by name, labels left out."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text = answer.read().decode()
        values = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                values[name] = values.get(name, 0) + float(value)
        return values

    def memory_kib(self):
        """The largest that the process has had in memory."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100


class Stream:
    """What came of one request: its status, and when each event of its stream came."""

    def __init__(self):
        self.status = 0
        self.headers = {}
        self.sent = self.ended = 0.0
        self.times = []
        self.usage = None
        self.text = ""
        self.complete = False

    def first_s(self):
        return self.times[0] - self.sent

    def gaps_s(self):
        return [b - a for a, b in zip(self.times, self.times[1:])]


def request_bytes(path, body, port):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data


async def ask(port, prompt, tokens, *, model="base", leave_after=None, **more):
    """A stream of `tokens` behind `prompt`. `leave_after`: the client goes after so many events; 0: at once."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True,
            "temperature": 1, "seed": 1, "stream_options": {"include_usage": True}, **more}
    stream = Stream()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        stream.sent = time.perf_counter()
        writer.write(request_bytes("/v1/completions", body, port))
        await writer.drain()
        if leave_after == 0:
            return stream
        stream.status = int((await reader.readline()).split()[1])
        while (line := (await reader.readline()).strip()):
            name, _, value = line.decode().partition(":")
            stream.headers[name.lower()] = value.strip()
        if stream.status not in (200, 429, 503):
            raise SystemExit(f"status {stream.status}: {(await reader.read()).decode()}")
        async for line in reader:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                stream.complete = True
                break
            event = json.loads(line[6:])
            if event.get("usage"):
                stream.usage = event["usage"]
            if event.get("choices"):
                stream.times.append(time.perf_counter())
                stream.text += event["choices"][0]["text"]
            if leave_after is not None and len(stream.times) >= leave_after:
                break
        stream.ended = time.perf_counter()
    finally:
        writer.close()
    return stream


async def ask_all(port, requests):
    """All at once; `requests` are the arguments of ask() beside the port."""
    return await asyncio.gather(*(ask(port, **request) for request in requests))


def rate(streams):
    """Tokens a second from the moment on at which each stream has its first token."""
    begin = max(stream.times[0] for stream in streams)
    end = min(stream.times[-1] for stream in streams)
    count = sum(sum(1 for at in stream.times if begin < at <= end) for stream in streams)
    return count / (end - begin) if end > begin else float("nan")
