#!/usr/bin/env python3
"""What the page of `atoll watch` takes: bench/watch.py ATOLL [--runs 50] [--records 100000] [--series 20] [--pairs 5].

Prints the tables of bench/results/watch.md. Needs Chromium. Times are of a machine that may be busy; counts, bytes and CPU seconds are not."""

import argparse
import gzip
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "e2e"))
import browser
import watch_page
import watch_runs


def row(name, asked, seen):
    print(f"| {name} | {asked} | {seen} |", flush=True)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid, key="VmRSS"):
    return int(re.search(rf"{key}:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) / 1024


def children(pid):
    return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def page(atoll, root):
    folder = os.path.join(os.path.dirname(__file__), "..", "src", "atoll", "watch", "page")
    texts = [open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))]
    row("files of the page, gzip -9", "100 kB", f"{len(gzip.compress(b''.join(texts), 9)) / 1000:.1f} kB")
    watch_runs.make(root)
    with watch_page.Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch:
        paints = []
        for _ in range(5):
            with browser.Page() as one:
                watch_page.opened(one, watch.url, 8)
                paints.append(one.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
                away = [url for url in one.requests if not url.startswith(watch.url.split("/?")[0])]
                errors = one.errors
        row("first paint, median of 5 browsers", "300 ms", f"{statistics.median(paints):.0f} ms")
        row("requests to other hosts; lines in the console", "0; 0", f"{len(away)}; {len(errors)}")
        timeline(root)
        with browser.Page() as one:
            watch_page.opened(one, watch.url, 8)
            one.until("[...atollPage.runs.keys()].some((id) => id.endsWith('/ranks-64'))")
            watch_page.choose(one, "ranks-64")
            watch_page.look(one, "timeline", "atollPage.view.lanes && atollPage.view.drewIn > 0")
            one.run("(() => { const v = atollPage.view; v.steps.value = 'all'; v.chooseStep(); })()")
            times = [one.run("(() => { const v = atollPage.view; v.draw(); return v.drewIn; })()") for _ in range(9)]
            count = one.run("atollPage.view.lanes.reduce((n, lane) => n + lane.events.length, 0)")
            row(f"timeline of 64 ranks x 20 steps ({count:,.0f} spans) drawn, median of 9", "200 ms", f"{statistics.median(times):.0f} ms")


def timeline(root):
    draw, events = random.Random(1), []
    for rank in range(64):
        for step in range(20):
            at = step * 50000
            for layer in range(24):
                took = 1000 * (1.4 if rank == 5 else 1) * (1 + .05 * draw.random())
                events.append({"ph": "X", "name": f"forward layers.{layer}", "cat": "forward", "pid": rank, "tid": 0, "ts": at, "dur": took})
                at += took
            events.append({"ph": "X", "name": f"step {step}", "cat": "step", "pid": rank, "tid": 0, "ts": step * 50000, "dur": 49000})
    path = watch_runs.write(root, "ranks-64", watch_runs.ordinary(3, 20, ranks=64), 200)
    json.dump({"traceEvents": events}, open(os.path.join(path, "trace.json"), "w"))


def scale(atoll, root, runs, records, series):
    """One file under many names: they share the disk's cache, and nothing in the reader."""
    draw, first = random.Random(1), os.path.join(root, "run-000", "metrics.jsonl")
    watch_runs.write(root, "run-000", [], records)
    with open(first, "w") as file:
        for i in range(records):
            values = {"loss": 2 + draw.random(), "tokens": i * 512} | {f"series_{k}": draw.random() for k in range(series - 2)}
            file.write(watch_runs.line(i, 1.7e9 + i * .05, **values))
    for number in range(1, runs):
        path = watch_runs.write(root, f"run-{number:03}", [], records)
        os.remove(os.path.join(path, "metrics.jsonl"))
        os.link(first, os.path.join(path, "metrics.jsonl"))
    begun = time.monotonic()
    with watch_page.Watch([atoll, "watch", root, "--listen", "127.0.0.1:0", "--memory", "2048"]) as watch, browser.Page() as one:
        one.open(watch.url)
        one.until("globalThis.atollPage?.runs.size && document.querySelector('.chart') && [...atollPage.runs.values()].some((r) => r.records > 0)", 600)
        row("first chart of a server that has read nothing yet", "", f"{time.monotonic() - begun:.2f} s")
        one.until(f"atollPage.runs.size === {runs} && [...atollPage.runs.values()].every((r) => r.read >= r.bytes && r.records === {records})", 3000)
        pid = watch.process.pid
        mib = os.path.getsize(first) * runs / 2**20
        row(f"reading {mib:,.0f} MiB", "", f"{cpu_seconds(pid):.1f} CPU s, {mib / cpu_seconds(pid):.0f} MiB a CPU s; {memory_mib(pid):.0f} MiB of memory")
        one.open("about:blank")
        one.open(watch.url)
        one.until(f"globalThis.atollPage?.runs.size === {runs}")
        before = one.bytes
        one.run("performance.mark('a'); document.getElementById('all').click()")
        one.until("!atollPage.view.isLoading && atollPage.chosenRuns().every((r) => atollPage.store.part(r, 'loss')) && atollPage.view.drawnAt >= performance.getEntriesByName('a')[0].startTime")
        shown = one.run("atollPage.view.drawnAt - performance.getEntriesByName('a')[0].startTime")
        row(f"all {runs} runs chosen, the charts in sight drawn", "1 s", f"{shown / 1000:.2f} s, {(one.bytes - before) / 1e6:.1f} MB")
        zooms = []
        for k in range(7):
            low = records * (.1 + .1 * k)
            one.run(f"performance.clearMarks(); performance.mark('a'); atollPage.view.zoom([{low}, {low + records * .05}])")
            one.until("!atollPage.view.isLoading && atollPage.view.loadedAt > performance.getEntriesByName('a')[0].startTime && atollPage.view.drawnAt >= atollPage.view.loadedAt")
            zooms.append(one.run("atollPage.view.drawnAt - performance.getEntriesByName('a')[0].startTime"))
        row(f"zoom to a twentieth, {runs} runs, the charts in sight, median of 7", "100 ms", f"{statistics.median(zooms):.0f} ms")
        one.run("(() => { const id = [...atollPage.runs.keys()][0]; atollPage.chosen = new Set([id]); atollPage.choiceChanged(); })()")
        one_run = []
        for k in range(7):
            low = records * (.15 + .1 * k)
            one.run(f"performance.clearMarks(); performance.mark('a'); atollPage.view.zoom([{low}, {low + records * .05}])")
            one.until("!atollPage.view.isLoading && atollPage.view.loadedAt > performance.getEntriesByName('a')[0].startTime && atollPage.view.drawnAt >= atollPage.view.loadedAt")
            one_run.append(one.run("atollPage.view.drawnAt - performance.getEntriesByName('a')[0].startTime"))
        row("zoom to a twentieth, one run, median of 7", "100 ms", f"{statistics.median(one_run):.0f} ms")
        row("heap of the page after that", "150 MB", f"{one.heap() / 1e6:.0f} MB")


def cost(atoll, root, pairs):
    """The same run with and without --watch and a viewer, one after the other."""
    text = os.path.join(root, "text.txt")
    with open(text, "w") as file:
        file.write("the sea is wide and a ring of islands lies there .\n" * 3000)
    import subprocess
    seconds = {False: [], True: []}
    watching, memory = [], []
    for pair in range(pairs):
        for watched in (False, True) if pair % 2 == 0 else (True, False):
            run = [atoll, "train", f"--data.text={text}", "--data.vocab_size=300", f"--run.dir={root}/cost-{pair}-{watched}", "--model.hidden_size=128", "--model.num_hidden_layers=4",
                   "--model.num_attention_heads=4", "--model.num_key_value_heads=4", "--train.context=128", "--train.batch_size=4", "--train.micro_batch=4", "--train.steps=400", "--log.every=1", "--device.threads=1"]
            if not watched:
                process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                _, status, usage = os.wait4(process.pid, 0)
            else:
                with watch_page.Watch([*run, "--watch-at=127.0.0.1:0"]) as one, browser.Page() as viewer:
                    viewer.open(one.url)
                    viewer.until("document.querySelectorAll('.chart').length > 4")
                    child = children(one.process.pid)[0]
                    watching.append(0)
                    memory.append(0)
                    while os.waitid(os.P_PID, one.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                        try:
                            watching[-1], memory[-1] = cpu_seconds(child), memory_mib(child, "RssAnon")
                        except (OSError, AttributeError):
                            break
                        time.sleep(.1)
                    _, status, usage = os.wait4(one.process.pid, 0)
                    one.process.returncode = 0
            assert status == 0, status
            seconds[watched].append(usage.ru_utime + usage.ru_stime - (watching[-1] if watched else 0))
    ratios = [a / b - 1 for a, b in zip(seconds[True], seconds[False])]
    row(f"CPU seconds of the trainer with a viewer against without, median of {pairs} pairs", "+0.5%", f"{100 * statistics.median(ratios):+.2f}% ({', '.join(f'{100 * r:+.2f}' for r in sorted(ratios))})")
    row("CPU seconds of the process beside it, of the trainer's", "", f"{100 * sum(watching) / sum(seconds[True]):.1f}% at a record a step of {1000 * statistics.median(seconds[True]) / 400:.0f} CPU ms")
    row("its own memory (RssAnon)", "10 MB", f"{max(memory):.1f} MiB")


def metrics(atoll, root, pairs):
    """A run that serves metrics, without anybody who asks and with four clients that ask as fast as they can; and what a page takes."""
    import subprocess
    import threading
    import urllib.request

    text = os.path.join(root, "text.txt")
    with open(text, "w") as file:
        file.write("the sea is wide and a ring of islands lies there .\n" * 3000)

    def start(name, more):
        run = [atoll, "train", f"--data.text={text}", "--data.vocab_size=300", f"--run.dir={root}/{name}", "--model.hidden_size=128", "--model.num_hidden_layers=4",
               "--model.num_attention_heads=4", "--model.num_key_value_heads=4", "--train.context=128", "--train.batch_size=4", "--train.micro_batch=4", "--train.steps=400",
               "--log.every=1", "--device.threads=1"]
        given = {word.split("=")[0] for word in more}
        run = [word for word in run if word.split("=")[0] not in given] + more
        return subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def step_ms(name):
        lines = [json.loads(line) for line in open(f"{root}/{name}/metrics.jsonl")]
        return statistics.median(line["step_ms"] for line in lines[20:] if "step_ms" in line)

    def url_of(process):
        for line in process.stderr:
            if found := re.search(r"metrics for Prometheus at (\S+)", line):
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return found.group(1)

    ratios, asked = [], 0
    for pair in range(pairs):
        times = {}
        for flooded in (False, True) if pair % 2 == 0 else (True, False):
            name = f"metrics-{pair}-{flooded}"
            process = start(name, ["--metrics.listen=127.0.0.1:0"] if flooded else [])
            if not flooded:
                process.communicate()
            else:
                # The client's own work is of another machine: it gets what nobody wants here.
                client = subprocess.Popen([sys.executable, "-c", FLOOD, url_of(process)], stdout=subprocess.PIPE, text=True)
                process.wait()
                asked += int(client.communicate()[0] or 0)
            times[flooded] = step_ms(name)
        ratios.append(times[True] / times[False] - 1)
    row(f"time of a step with four clients that ask all the time ({asked / pairs:.0f} answers a run) against without metrics, median of {pairs} pairs", "+0.5%",
        f"{100 * statistics.median(ratios):+.2f}% ({', '.join(f'{100 * r:+.2f}' for r in sorted(ratios))})")
    for ranks in (1, 64):
        process = start(f"ranks-{ranks}", ["--metrics.listen=127.0.0.1:0", "--train.steps=100000", "--train.batch_size=64", "--train.micro_batch=1", "--model.hidden_size=32",
                                           "--model.num_hidden_layers=1", "--model.num_attention_heads=2", "--model.num_key_value_heads=2", "--train.context=32",
                                           *(["-n", str(ranks)] if ranks > 1 else [])])
        url = url_of(process)
        while ranks > 1 and b'rank="63"' not in urllib.request.urlopen(url).read():
            time.sleep(.1)
        taken, size = [], 0
        for _ in range(50):
            begun = time.monotonic()
            size = len(urllib.request.urlopen(url).read())
            taken.append(1000 * (time.monotonic() - begun))
        process.kill()
        process.wait()
        taken.sort()
        row(f"a page of {size / 1000:.1f} kB of {ranks} ranks, while they keep all cores busy: median and 95% of 50", "5 ms", f"{taken[25]:.1f}, {taken[47]:.1f} ms")


FLOOD = """
import os, socket, sys, threading, time, urllib.parse
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
where = urllib.parse.urlparse(sys.argv[1])
counts = [0] * 4
def ask(number):
    while True:
        try:
            with socket.create_connection((where.hostname, where.port), timeout=5) as link:
                while True:
                    link.sendall(b"GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
                    if not link.recv(1 << 16): break
                    counts[number] += 1
        except ConnectionRefusedError:
            return
        except OSError:
            pass
threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(counts))
"""


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("atoll")
    arguments.add_argument("--runs", type=int, default=50)
    arguments.add_argument("--records", type=int, default=100_000)
    arguments.add_argument("--series", type=int, default=20)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--only", choices=["page", "scale", "cost", "metrics"])
    options = arguments.parse_args()
    atoll = os.path.abspath(options.atoll)
    print("| what | asked | seen |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="atoll-watch-bench-") as root:
        if options.only in (None, "page"):
            page(atoll, os.path.join(root, "page"))
        if options.only in (None, "scale"):
            scale(atoll, os.path.join(root, "scale"), options.runs, options.records, options.series)
        if options.only in (None, "cost"):
            cost(atoll, root, options.pairs)
        if options.only in (None, "metrics"):
            metrics(atoll, root, options.pairs)


if __name__ == "__main__":
    main()
