"""A headless Chromium, driven by the DevTools protocol with nothing but Python's own library."""

import base64
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The path of a Chromium; None where there is none."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return None


def split(script, operators):
    """The parts of an expression between operators that no bracket and no quote is around."""
    parts, depth, quote, begin, at = [], 0, "", 0, 0
    while at < len(script):
        c = script[at]
        if quote:
            at += c == "\\"
            quote = "" if c == quote else quote
        elif c in "'\"`":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth == 0 and (found := next((o for o in operators if script.startswith(f" {o} ", at)), None)):
            parts.append(script[begin:at].strip())
            begin = at = at + len(found) + 2
            continue
        at += 1
    return parts + [script[begin:].strip()]


class Page:
    """One page of a browser of its own, with what it has said and asked for."""

    def __init__(self, width=1280, height=900, dark=False):
        self.home = tempfile.TemporaryDirectory(prefix="atoll-chromium-", ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
             f"--user-data-dir={self.home.name}", f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        port_file = os.path.join(self.home.name, "DevToolsActivePort")
        self.port = self._until(lambda: os.path.exists(port_file) and open(port_file).read().split("\n")[0], "no browser")
        pages = self._until(lambda: [p for p in json.load(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/json"))
                                     if p["type"] == "page"], "no page")
        self._connect(pages[0]["webSocketDebuggerUrl"])
        self.number = 0
        self.errors, self.requests, self.bytes, self.ids = [], [], 0, {}
        self.paint = None
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    @staticmethod
    def _until(what, message, seconds=120):
        end = time.monotonic() + seconds
        while True:
            try:
                if value := what():
                    return value
            except OSError:
                pass
            if time.monotonic() > end:
                raise RuntimeError(message)
            time.sleep(0.02)

    # --- The socket: RFC 6455, as far as a client needs it

    def _connect(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.socket = socket.create_connection((name, int(port)), timeout=180)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        self.buffer = self.buffer.split(b"\r\n\r\n", 1)[1]

    def _send(self, text):
        data, mask = text.encode(), os.urandom(4)
        head = bytes([0x81])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        elif len(data) < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", len(data))
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", len(data))
        key = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(len(data), "big")
        self.socket.sendall(head + mask + masked)

    def _take(self, count):
        while len(self.buffer) < count:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise RuntimeError("the browser is gone")
            self.buffer += piece
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def _message(self):
        text = b""
        while True:
            first, second = self._take(2)
            size = second & 127
            if size == 126:
                size = struct.unpack(">H", self._take(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self._take(8))[0]
            text += self._take(size)
            if first & 0x80:
                return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        mine = self.number
        self._send(json.dumps({"id": mine, "method": method, "params": parameters}))
        while True:
            message = self._message()
            if message.get("id") == mine:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._event(message)

    def _event(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
            self.ids[parameters["requestId"]] = parameters["request"]["url"]
        elif method == "Network.loadingFinished":
            self.bytes += parameters["encodedDataLength"]

    # --- What tests do

    def size(self, width, height, ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=width < 600)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of a JavaScript expression, awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def until(self, script, seconds=120):
        """Waits until an expression is true; only a hang reaches the time."""
        def look():
            try:
                return self.run(f"!!({script})")
            except RuntimeError:
                return None  # while a page is loading
        try:
            return self._until(look, script, seconds)
        except RuntimeError:
            raise RuntimeError(f"never true: {script}\n{self._seen(script)}\nthe page says: {self.run('document.body.innerText')[:2000]}\nits console: {self.errors}") from None

    def _seen(self, script):
        """Which conditions of an expression do not hold, and what is there instead."""
        lines = []
        for part in split(script, ["&&"]):
            try:
                if self.run(f"!!({part})"):
                    continue
                left = split(part, ["===", "!==", ">=", "<=", ">", "<"])[0]
                lines.append(f"not so: {part}" + (f"; seen: {json.dumps(self.run(left))}" if left != part else ""))
            except RuntimeError as error:
                lines.append(f"not so: {part}; {error}")
        return "\n".join(lines)

    def key(self, key):
        text = key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def drag(self, x0, y0, x1, y1):
        for kind, x, y in (("mousePressed", x0, y0), ("mouseMoved", x1, y1), ("mouseReleased", x1, y1)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def heap(self):
        self.call("HeapProfiler.collectGarbage")
        return self.call("Runtime.getHeapUsage")["usedSize"]

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # and what it has started
        self.process.wait()
        self.socket.close()
        self.home.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
