#!/usr/bin/env python3
"""The page of `atoll watch` in a real browser: watch_page.py ATOLL [PICTURES [MORE...]] [--ledgers DIR].

Exits with 77 where there is no Chromium. PICTURES: a folder for pictures of the page, instead of the checks. DIR: has the ledgers that
watch_slow_test.cpp makes, which are looked at too."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
import watch_charts
import watch_runs
from watch_driver import Watch, choose, drawn, expect, expect_same, found, look, opened, search


def check_recorded(atoll, root):
    with Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch, browser.Page() as page:
        opened(page, watch.url, 8)
        choose(page, "*")
        drawn(page)
        # Steps that are not finite are marked, each of them.
        page.until("atollPage.store.part([...atollPage.runs.values()].find((r) => r.id.endsWith('/nan')), 'loss').bad.length === 4")
        choose(page, "nan")
        drawn(page)
        expect_same(page.run("atollPage.view.charts.get('loss').chart.lines[0].breaks.size"), 2, "gaps in the line of a run with two")

        # Zoom with the pointer comes to raw points; Escape leads back.
        choose(page, "healthy")
        drawn(page)
        box = page.run("(() => { const b = atollPage.view.charts.get('loss').plot.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        page.drag(box[0] + box[2] * .4, box[1] + 80, box[0] + box[2] * .5, box[1] + 80)
        page.until("atollPage.view.range !== null")
        drawn(page)
        low, high = page.run("atollPage.view.range")
        expect(600 < low < high < 1200, f"the range that was drawn is {low} to {high}")
        expect_same(page.run("atollPage.view.charts.get('loss').chart.lines[0].size"), 1, "records of a point, seen closely")
        page.key("Escape")
        page.until("atollPage.view.range === null")

        # Smoothing, logarithms and axes by the keyboard.
        for key, done in (("s", "atollPage.view.state.weight === .6"), ("l", "atollPage.view.state.logY"), ("g", "atollPage.view.state.logX"),
                          ("x", "atollPage.view.state.axis === 'tokens'"), ("x", "atollPage.view.state.axis === 'wall'")):
            page.key(key)
            page.until(done)
        drawn(page)
        page.key("/")
        page.until("document.activeElement.id === 'search'")
        # By its name, and by its state: half of its steps are in no checkpoint.
        found(page, "lost", "lost-rank", "nan")
        found(page, "lost rank", "lost-rank")
        found(page, "stopped", "restarted", "straggler")
        search(page, "")

        # Settings that differ, and no other.
        choose(page, "healthy", "restarted")
        look(page, "compare", "document.querySelectorAll('td.differs').length === 4")
        expect_same(page.run("[...document.querySelectorAll('tbody tr')].map((r) => r.cells[0].textContent)"), ["run.dir", "optim.lr"], "the settings that differ")

        choose(page, "lost-rank", "nan")
        look(page, "events", "document.body.innerText.includes('rank 2 was lost') && document.body.innerText.includes('atoll launch recipe.toml') && document.body.innerText.includes('sample 820')")
        page.run("document.querySelector('textarea').value = 'looks <b>odd</b> #odd'; [...document.querySelectorAll('main button')].find((b) => b.textContent.startsWith('keep')).click()")
        page.until("document.querySelector('#runs').innerText.includes('#odd')")
        page.until("document.querySelector('main').innerText.includes('looks <b>odd</b> #odd')")
        found(page, "odd looks", "lost-rank")
        search(page, "")
        choose(page, "ranks-256")
        look(page, "ranks", "document.querySelectorAll('.ranks span').length === 256 && document.querySelector('.ranks span.slow').textContent === '201'")
        page.until("document.body.innerText.includes('for rank 201, which waits')")
        choose(page, "straggler")
        look(page, "ranks", "document.querySelectorAll('.ranks span').length === 8")
        waits = page.run("[...document.querySelectorAll('.ranks span')].map((box) => parseInt(box.style.getPropertyValue('--waits')))")
        expect(waits[5] == min(waits) < 5 and min(waits[:5]) > 20, f"who waits for whom: {waits}")
        choose(page, "healthy")
        look(page, "samples", "document.querySelectorAll('main .card').length === 4 && document.querySelector('main h2').textContent === 'step 2000'")
        page.run("(() => { const s = document.querySelector('main select'); s.value = 'prompt'; s.dispatchEvent(new Event('change')); })()")
        page.until("document.querySelectorAll('main .card').length === 2 && document.querySelector('main pre').innerText.startsWith('In the beginning was the word')")
        choose(page, "traced")
        look(page, "timeline", "document.body.innerText.includes('rank 5 computes')")

        # Every text of a run that is markup, on every view.
        page.run("atollPage.chosen = new Set([...atollPage.runs.keys()].filter((id) => id.includes('evil'))); atollPage.choiceChanged()")
        for view in ("charts", "compare", "events", "samples", "ranks", "timeline", "charts"):
            look(page, view, f"atollPage.viewName === '{view}' && !!document.getElementById('view').firstChild")
        drawn(page)
        expect(page.run("window.evil === undefined && !document.querySelector('main img, main script, aside img, aside script')"), "a text of a run became markup")
        expect(page.run("[...document.querySelectorAll('.chart h3')].some((h) => h.textContent.includes('onerror'))"), "the odd series has no chart")

        page.size(390, 844)
        page.until("document.documentElement.scrollWidth <= 390")
        origin = watch.url.split("/?")[0] + "/"
        expect(not page.errors, f"the console says {page.errors}")
        away = [url for url in page.requests if not url.startswith(origin)]
        expect(not away, f"requests leave the host: {away}")


def check_stream(atoll, root):
    """What is written while the stream is cut comes once, and no point twice."""
    path = watch_runs.write(root, "growing", watch_runs.ordinary(11, 100)[:100], 5000)
    more = [text for text in watch_runs.ordinary(12, 400) if json.loads(text)["step"] > 1000]
    wanted = [json.loads(text)["step"] for text in watch_runs.ordinary(11, 100)[:100] + more if "grad_norm" in text]

    def append(lines):
        with open(os.path.join(path, "metrics.jsonl"), "a") as file:
            for line in lines:
                file.write(line[:20])
                file.flush()
                file.write(line[20:])
                file.flush()

    with browser.Page() as page:
        with Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch:
            opened(page, watch.url, 1)
            choose(page, "growing")
            drawn(page)
            part = "atollPage.store.part(atollPage.runs.get([...atollPage.chosen][0]), 'loss')"
            last = f"Math.max(...{part}.x1)"
            append(more[:50])
            page.until(f"{last} === {[json.loads(t)['step'] for t in more[:50] if 'grad_norm' in t][-1]}")
            append(more[50:60])
            page.until(f"{last} === {[json.loads(t)['step'] for t in more[:60] if 'grad_norm' in t][-1]}")
            port = re.search(r":(\d+)/", watch.url).group(1)
        page.until("document.getElementById('link').textContent === 'connection lost'")
        append(more[60:200])
        with Watch([atoll, "watch", root, "--listen", f"127.0.0.1:{port}"]):
            append(more[200:])
            page.until(f"{last} === {wanted[-1]}")
            records = page.run(f"{part}.r")
            expect_same(records, sorted(set(records)), "records, each once and in order")
            expect_same(page.run(f"{part}.size"), 1, "records of a point, of a few")
            expect_same(page.run(f"{part}.x0"), wanted, "steps of the points")


# A stream that opens when it is told to.
LATE_STREAM = """(() => {
  const Stream = EventSource;
  globalThis.EventSource = function (url) {
    const late = {listeners: [], addEventListener(...one) { this.listeners.push(one); }};
    globalThis.openStream = () => {
      const stream = new Stream(url);
      for (const [name, listener] of [["open", late.onopen], ["error", late.onerror], ...late.listeners]) stream.addEventListener(name, listener);
    };
    return late;
  };
})()"""


def check_live(atoll, root):
    """A run that trains, its kill, and --watch beside it."""
    text = os.path.join(root, "text.txt")
    with open(text, "w") as file:
        file.write("the sea is wide and a ring of islands lies there .\n" * 600)
    train = [atoll, "train", f"--data.text={text}", "--data.vocab_size=300", f"--run.dir={root}/live", "--model.hidden_size=32", "--model.num_hidden_layers=1",
             "--model.num_attention_heads=2", "--model.num_key_value_heads=2", "--train.context=32", "--train.batch_size=4", "--train.micro_batch=4",
             "--train.steps=1000000", "--log.every=1", "--watch-at=127.0.0.1:0"]
    with Watch(train) as run, browser.Page() as page:
        page.open(run.url)
        page.until("globalThis.atollPage?.runs.size === 1 && document.querySelector('.chip.running')")
        page.until("document.querySelectorAll('.chart').length > 4")
        first = page.run("[...atollPage.runs.values()][0].records")
        page.until(f"[...atollPage.runs.values()][0].records > {first} + 5")
        # The page of another process sees the kill; the one beside the run ends with it.
        with Watch([atoll, "watch", f"{root}/live", "--listen", "127.0.0.1:0"]) as other, browser.Page() as second:
            second.call("Page.addScriptToEvaluateOnNewDocument", source=LATE_STREAM)
            second.open(other.url)
            second.until("document.querySelector('.chip.running') && globalThis.openStream")
            run.process.send_signal(signal.SIGKILL)
            # What happens between the list of runs and the stream is not missed.
            second.until("fetch('api/runs').then((answer) => answer.json()).then((list) => { globalThis.told = list.runs[0].state; }) && globalThis.told === 'lost'")
            second.run("openStream()")
            second.until("document.querySelector('.chip.lost')")
            look(second, "events", "document.body.innerText.includes('its process is gone')")
        page.until("document.getElementById('link').textContent === 'connection lost'")


def check_ledgers(atoll, root):
    """Islands: few, with links of which one is slow, and a thousand."""
    with Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch, browser.Page() as page:
        page.open(watch.url)
        page.until("globalThis.atollPage?.ledgers.length === 2")

        def show(name):
            look(page, "islands", "document.querySelector('main select')?.options.length === 2")
            page.run(f"(() => {{ const s = document.querySelector('main select'); s.value = [...s.options].find((o) => o.value.endsWith('{name}')).value; s.dispatchEvent(new Event('change')); }})()")

        show("few")
        page.until("document.querySelectorAll('main svg circle').length === 6 && document.querySelector('main h2').textContent === 'Islands: 5'")
        expect_same(page.run("[...document.querySelectorAll('main svg title')].filter((t) => t.textContent.includes('bit/s')).length"), 20, "lines for links, one for each way")
        titles = page.run("[...document.querySelectorAll('main svg circle title')].map((t) => t.textContent)")
        expect(["island-3" in title and "all wait for it" in title for title in titles].count(True) == 1, f"who waits for whom: {titles}")
        expect_same([": finished;" in title for title in titles].count(True), 5, "islands of a run that has finished")
        expect_same(page.run("[...document.querySelectorAll('main td.differs')].map((cell) => cell.textContent)"), ["8Mbit/s, 120 ms"], "the slowest link")
        expect_same(page.run("[...document.querySelectorAll('main tbody')].map((body) => body.rows.length)"), [5, 12], "rows of links and of outer steps")
        show("many")
        page.until("document.querySelectorAll('main svg rect').length === 1000")
        page.until("document.body.innerText.includes('Slowest link of each island')")
        expect_same(page.run("[...document.querySelectorAll('main tbody')].map((body) => body.rows.length)"), [50, 3], "rows of the slowest links and of outer steps")
        page.size(390, 844)
        page.until("document.documentElement.scrollWidth <= 390")
        expect(not page.errors, f"the console says {page.errors}")


def check_study(atoll, root):
    """A population that `atoll tune` trains, with --watch beside it."""
    text = os.path.join(root, "text.txt")
    with open(text, "w") as file:
        file.write("the sea is wide and a ring of islands lies there .\n" * 600)
    with open(os.path.join(root, "recipe.toml"), "w") as file:
        file.write(f"""[run]
dir = "{root}/run"
[model]
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 2
[data]
text = ["{text}"]
vocab_size = 300
[train]
steps = 2000
batch_size = 4
micro_batch = 4
context = 32
[optim]
schedule = "constant"
[device]
threads = 1
""")
    with open(os.path.join(root, "study.toml"), "w") as file:
        file.write(f"""[study]
recipe = "{root}/recipe.toml"
dir = "{root}/study"
searcher = "random"
scheduler = "pbt"
[space]
optim.lr = {{low = 1e-3, high = 3e-2, scale = "log"}}
optim.weight_decay = {{low = 0.0, high = 0.2}}
[pbt]
population = 4
interval = 10
""")
    with Watch([atoll, "tune", f"{root}/study.toml", "--watch-at=127.0.0.1:0"]) as tune, browser.Page() as page:
        page.open(tune.url)
        page.until("globalThis.atollPage?.studies.length === 1")
        look(page, "study", "document.querySelectorAll('main tbody tr').length >= 4 && document.querySelectorAll('main polyline').length >= 4")
        page.until("[...document.querySelectorAll('main h2')].some((h) => h.textContent === 'Who was forked from whom') && document.querySelector('main svg path')")
        expect(not page.errors, f"the console says {page.errors}")
        # A study that ended by itself might do so before the page has looked.
        tune.process.send_signal(signal.SIGTERM)
        tune.process.wait()
        page.until("document.getElementById('link').textContent === 'connection lost'")
    with Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch, browser.Page() as page:
        page.open(watch.url)
        page.until("globalThis.atollPage?.studies.length === 1")
        look(page, "study", "document.querySelector('main svg path')")


def check_beside(atoll, root):
    """--watch beside launch and coordinator."""
    text = os.path.join(root, "text.txt")
    with open(text, "w") as file:
        file.write("the sea is wide and a ring of islands lies there .\n" * 600)
    settings = [f"--data.text={text}", "--data.vocab_size=300", "--model.hidden_size=32", "--model.num_hidden_layers=1", "--model.num_attention_heads=2",
                "--model.num_key_value_heads=2", "--train.context=32", "--train.batch_size=4", "--train.micro_batch=2", "--train.steps=1000000", "--log.every=1",
                "--device.threads=1"]
    with Watch([atoll, "launch", *settings, f"--run.dir={root}/launched", "--min-ranks=2", "--max-ranks=2", "--backend=tcp", "--watch-at=127.0.0.1:0"]) as launch, browser.Page() as page:
        page.open(launch.url)
        page.until("globalThis.atollPage?.runs.size === 1 && document.querySelector('.chip.running')")
        look(page, "ranks", "document.querySelectorAll('.ranks span').length === 2 && document.body.innerText.includes('who waits for whom')")
        launch.process.send_signal(signal.SIGTERM)
        launch.process.wait()
        page.until("document.getElementById('link').textContent === 'connection lost'")
    with Watch([atoll, "coordinator", "--dir", f"{root}/ledger", "--listen", "127.0.0.1:0", "--watch-at=127.0.0.1:0"], r"watch it at (http://\S+)") as coordinator, browser.Page() as page:
        page.open(coordinator.url)
        page.until("document.getElementById('link').textContent === 'live'")
        found = None  # the ledger is made when the first island has joined, and the page is told
        while found is None:
            found = re.search(r"coordinator at (\S+);", "".join(coordinator.lines))
        island = subprocess.Popen([atoll, "train", *settings, f"--run.dir={root}/island", f"--island.coordinator={found.group(1)}", "--island.name=alpha", "--outer.islands=1",
                                   "--outer.inner_steps=5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            page.until("globalThis.atollPage?.ledgers.length === 1")
            look(page, "islands", "document.querySelectorAll('main tbody tr').length > 1 && document.body.innerText.includes('alpha')")
        finally:
            island.kill()
            island.wait()


def check_export(atoll, recorded, root):
    """One page to mail around, opened from the disk: no request, no script, all texts as they are."""
    runs = [os.path.join(recorded, name) for name in sorted(os.listdir(recorded))]
    # A damaged file is refused; what is markup is text.
    for run in runs:
        if "evil" in run:
            with open(os.path.join(run, "alerts.jsonl"), "w") as file:
                file.write(json.dumps({"time": 1.7635e9, "step": 1, "kind": "spike", "severity": "warning", "message": watch_runs.EVIL, "command": watch_runs.EVIL}) + "\n")
    out = os.path.join(root, "runs.html")
    subprocess.run([atoll, "runs", "export", *runs, "--format", "html", "--out", out], check=True, stdout=subprocess.DEVNULL)
    with browser.Page() as page:
        page.open("file://" + out)
        page.until("document.readyState === 'complete' && document.querySelectorAll('svg').length > 4")
        expect(page.run("[...document.querySelectorAll('svg')].every((svg) => svg.getBoundingClientRect().width > 300)"), "the curves are drawn")
        expect(page.run("document.body.innerText.includes('rank 2 was lost') && document.body.innerText.includes('atoll launch recipe.toml')"), "the alert and its command")
        expect(page.run("document.body.innerText.includes('In the beginning was the word')"), "the samples")
        expect(page.run("window.evil === undefined && !document.querySelector('img, script')"), "a text of a run became markup")
        expect(not page.errors, f"the console says {page.errors}")
        expect_same(page.requests, ["file://" + out], "what it asks for")
        page.size(390, 844)
        page.until("document.documentElement.scrollWidth <= 390")


def pictures(atoll, root, out):
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(root):
        if "evil" in name:
            shutil.rmtree(os.path.join(root, name))
    with Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch:
        for dark in (False, True):
            with browser.Page(1180, 760, dark=dark) as page:
                name = lambda what: os.path.join(out, f"{what}{'-dark' if dark else ''}.png")
                opened(page, watch.url, 7)
                choose(page, "healthy", "restarted", "nan")
                drawn(page)
                page.until("atollPage.chosenRuns().every((run) => atollPage.view.marks(run).length > 0)")
                drawn(page)
                watch_charts.point(page, "loss", 900)
                page.picture(name("watch-charts"))
                if dark:
                    continue
                choose(page, "straggler", "lost-rank")
                look(page, "ranks", "document.querySelector('.ranks span.slow')")
                page.picture(name("watch-ranks"))
                choose(page, "traced")
                look(page, "timeline", "document.body.innerText.includes('rank 5 computes')")
                page.picture(name("watch-timeline"))
                choose(page, "lost-rank", "nan")
                look(page, "events", "document.body.innerText.includes('rank 2 was lost')")
                page.picture(name("watch-events"))
                for view in ("islands", "study"):
                    if page.run(f"document.querySelectorAll('#tabs button').length") > 5 and page.run(f"atollPage.{'ledgers' if view == 'islands' else 'studies'}.length"):
                        look(page, view, "document.querySelector('main svg')")
                        page.picture(name(f"watch-{view}"))
                choose(page, "healthy")
                look(page, "charts", "document.querySelectorAll('.chart').length > 4")
                page.size(390, 760)
                page.until("document.documentElement.scrollWidth <= 390")
                drawn(page)
                page.picture(name("watch-phone"))


def main():
    if browser.find() is None:
        print("skipped: there is no Chromium; apt-get install chromium-headless-shell")
        sys.exit(77)
    atoll, ledgers = os.path.abspath(sys.argv[1]), None
    if "--ledgers" in sys.argv:
        at = sys.argv.index("--ledgers")
        ledgers = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    with tempfile.TemporaryDirectory(prefix="atoll-watch-") as root:
        recorded = os.path.join(root, "runs")
        watch_runs.make(recorded)
        if len(sys.argv) > 2:
            for more in sys.argv[3:]:
                shutil.copytree(more, os.path.join(recorded, os.path.basename(more)))
            pictures(atoll, recorded, sys.argv[2])
            return
        watch_charts.check(atoll, os.path.join(root, "charts"))
        check_recorded(atoll, recorded)
        check_stream(atoll, os.path.join(root, "stream"))
        check_live(atoll, root)
        for check in (check_study, check_beside):
            folder = os.path.join(root, check.__name__)
            os.makedirs(folder)
            check(atoll, folder)
        if ledgers:
            check_ledgers(atoll, ledgers)
        check_export(atoll, recorded, root)
        print("the page holds")


if __name__ == "__main__":
    main()
