"""Islands that are killed, stopped and cut off: the processes, and what they have written."""

import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = "the sea is wide and a ring of islands lies there".split()
# Steps of about two milliseconds: a fault may hit anything.
MODEL = ["--model.hidden_size=64", "--model.num_hidden_layers=2", "--model.num_attention_heads=4",
         "--model.num_key_value_heads=2", "--data.vocab_size=300", "--train.batch_size=2",
         "--train.micro_batch=2", "--train.context=128", "--device.threads=1",
         "--log.tensorboard=false", "--data.held_out=0", "--optim.lr=0.003"]


def wait_until(condition, seconds=60, what="what was waited for"):
    """Its value, once it has one; the poll is short because times are measured with it."""
    end = time.time() + seconds
    while time.time() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise SystemExit(f"{what} has not come in {seconds} s")


_HANDED_OUT = set()


def free_place():
    """Where a server can listen, and can again after it was killed.

    The system takes none of these ports by itself: one that it had picked could be another
    connection's by the time that the server wants it.
    """
    limits = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    first, last = map(int, limits.split())
    ports = [port for port in range(10000, 65536) if not first <= port <= last]
    ports = ports or list(range(10000, 65536))  # where the system may pick any
    random.Random().shuffle(ports)  # a soak's own seed goes on as if nothing had been drawn
    for port in ports:
        if port in _HANDED_OUT:
            continue
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        _HANDED_OUT.add(port)
        return f"127.0.0.1:{port}"
    raise SystemExit("no port is free to listen at")


class Relay:
    """A way to a server that can be cut: connections stay, nothing moves."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.target = None
        self.open = threading.Event()
        self.open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                host, port = self.target.rsplit(":", 1)
                server = socket.create_connection((host, int(port)), timeout=5)
                server.settimeout(None)
            except (OSError, AttributeError):
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                self.open.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Here:
    """Where the processes of a run are: all on this machine, and in the clear."""

    @staticmethod
    def prefix(_):
        return ()

    @staticmethod
    def coordinator():
        return ["--listen", free_place()]

    @staticmethod
    def island(_):
        return []


class Process:
    """An atoll that can be started again; remembers when it was there."""

    def __init__(self, atoll, log, words, prefix=()):
        self.atoll, self.log, self.words = atoll, log, [str(word) for word in words]
        self.prefix = prefix  # of the command: where to run it
        self.child, self.spans, self.stopped = None, [], 0.0

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.child = subprocess.Popen([*self.prefix, self.atoll, *self.words],
                                          stdout=subprocess.DEVNULL, stderr=log)
        self.spans.append([time.time(), None])

    def kill(self, how=signal.SIGKILL):
        self.child.send_signal(how)
        return self.ended()

    def ended(self, seconds=120):
        code = self.child.wait(seconds)
        self.spans[-1][1] = time.time()
        return code

    def is_up(self):
        return self.child is not None and self.child.poll() is None

    def lines(self):
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def seconds_up(self):
        return sum((end or time.time()) - begin for begin, end in self.spans) - self.stopped


class Island(Process):
    """One of them, with the records of its metrics."""

    def __init__(self, run, name, settings, is_cut=False):
        self.directory = run.work / name
        self.relay = Relay() if is_cut else None
        place = self.relay.address if self.relay else run.address
        if self.relay:
            self.relay.target = run.address
        self.door = Relay() if is_cut and not run.is_behind_nat else None
        if run.is_behind_nat:
            settings = [*settings, "--island.listen="]
        elif self.door:
            self.door.target = free_place()
            settings = [*settings, f"--island.listen={self.door.target}",
                        f"--island.advertise={self.door.address}"]
        super().__init__(run.atoll, run.work / f"{name}.log", [
            "train", f"--data.text={run.text}", f"--run.dir={self.directory}", *run.model,
            f"--island.coordinator={place}", f"--island.name={name}", *settings,
            *run.site.island(name)], run.site.prefix(name))
        self.name, self._read, self._file, self._records = name, 0, None, []

    def cut(self, is_cut):
        """Whether its coordinator is out of reach, and it is for the others."""
        for relay in filter(None, (self.relay, self.door)):
            (relay.open.clear if is_cut else relay.open.set)()

    def start(self):
        self.records()  # those after the checkpoint, before the new process drops them
        super().start()

    def records(self):
        """All that it has ever written, also what was taken back when it was started again."""
        path = self.directory / "metrics.jsonl"
        if not path.exists():
            return self._records
        with open(path, "rb") as file:
            if self._file != (number := os.fstat(file.fileno()).st_ino):
                self._file, self._read = number, 0
            newest = self._records[-1]["time"] if self._records and self._read == 0 else 0
            file.seek(self._read)
            data = file.read()
        whole = data[:data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # what a killed process had half written
                continue
            if record["time"] > newest:
                self._records.append(record)
        return self._records

    def outer(self):
        return [record for record in self.records() if "outer_step" in record]

    def steps(self):
        return [record for record in self.records() if "step_ms" in record]

    def model(self):
        """A hash of the newest checkpoint's parameters."""
        newest = max((self.directory / "checkpoints").glob("step-*"))
        digest = hashlib.sha256()
        for path in sorted(newest.glob("model*.safetensors")):
            data = path.read_bytes()
            digest.update(data[8 + struct.unpack("<Q", data[:8])[0]:])
        return digest.hexdigest()


class Run:
    """A coordinator and its islands, which only call out where they are behind NAT."""

    def __init__(self, atoll, work, names, steps, settings=(), is_cut=False, site=Here,
                 model=MODEL, is_behind_nat=False, text=None):
        self.atoll, self.work, self.site, self.model = str(atoll), pathlib.Path(work), site, model
        self.is_behind_nat = is_behind_nat
        self.work.mkdir(parents=True)
        self.text = text or self.work / "text.txt"
        if text is None:
            generator = random.Random(1)
            self.text.write_text(" ".join(generator.choice(WORDS) for _ in range(40000)),
                                 encoding="utf-8")
        self.coordinator = Process(self.atoll, self.work / "coordinator.log",
                                   ["coordinator", "--dir", self.work / "ledger",
                                    *site.coordinator()], site.prefix("coordinator"))
        self.coordinator.start()
        found = wait_until(lambda: re.search(r"coordinator at (\S+);",
                                             "\n".join(self.coordinator.lines())))
        self.address = found[1]
        words = self.coordinator.words
        words[words.index("--listen") + 1] = self.address
        self.settings = ["--outer.islands=" + str(len(names)), f"--train.steps={steps}", *settings]
        self.islands = [Island(self, name, self.settings, is_cut) for name in names]

    def start(self):
        for island in self.islands:
            island.start()

    def check(self):
        """Ends the benchmark when a process has ended."""
        for process in [self.coordinator, *self.islands]:
            if not process.is_up():
                raise SystemExit(f"{process.log.name} has ended: {process.lines()[-3:]}")

    def end(self, seconds=180):
        """Waits until all have ended by themselves; what they have come to, as a list of faults."""
        faults = []
        for process in [*self.islands, self.coordinator]:
            try:
                code = process.ended(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                code = f"none in {seconds} s"
            if code != 0:
                faults.append(f"{process.log.name}: exit code {code}: {process.lines()[-1:]}")
        return faults + self.audit()

    def stop(self):
        for process in [*self.islands, self.coordinator]:
            if process.is_up():
                process.kill()

    def show(self):
        return subprocess.run([self.atoll, "runs", "show", str(self.work / "ledger")], check=False,
                              capture_output=True, text=True).stdout

    def audit(self):
        """What the finished run is not as it should be."""
        faults, shown = [], self.show()
        for words in ("; finished", "audit       proved", " 0 leased, 0 given back and free"):
            if words not in shown:
                faults.append(f"the ledger does not say '{words.strip()}'")
        models = {island.name: island.model() for island in self.islands}
        if len(set(models.values())) != 1:
            faults.append(f"models differ: {models}")
        return faults

    def committed_tokens(self):
        """By island, as the ledger has them."""
        return {name: int(tokens.replace(",", "")) for name, tokens in
                re.findall(r"^ +\d+  (\S+) .* +\d+ +([\d,]+)$", self.show(), re.M)}
