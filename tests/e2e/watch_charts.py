"""Charts of the page: what pointing at them says, names and colours of runs, links, means of seeds, and what can be taken along."""

import base64
import csv
import io
import json
import os

import browser
import watch_runs
from watch_driver import Watch, choose, drawn, expect, expect_same


def make(root):
    settings = "[optim]\nlr = 0.0015\n"
    watch_runs.write(root, "long", watch_runs.ordinary(1, 200), 2000, settings)
    watch_runs.write(root, "short", watch_runs.ordinary(2, 50), 2000, "[optim]\nlr = 0.003\n")
    for trial in ("0001", "0002"):
        watch_runs.write(root, f"study/trials/{trial}/run", watch_runs.ordinary(3, 40), 2000, f"[optim]\nlr = 0.01{trial}\n")
    for seed in (1, 2, 3):
        path = watch_runs.write(root, f"seed-{seed}", watch_runs.ordinary(10 + seed, 40), 400)
        with open(os.path.join(path, "settings.toml"), "w") as file:
            file.write(f'[run]\ndir = "seed-{seed}"\nseed = {seed}\n\n[train]\nsteps = 400\n')
    path = watch_runs.write(root, "island-1", watch_runs.ordinary(4, 196, every=2), 400, checkpoints=(392,))
    with open(os.path.join(path, "finished.json"), "w") as file:
        file.write('{"step":392,"time":1763500100}\n')


def box(page, name):
    return page.run(f"(() => {{ const b = atollPage.view.charts.get('{name}').plot.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }})()")


def point(page, name, step):
    """Moves the pointer to where a step is on a chart; gives the lines of the tip, and the text below another chart."""
    left, top, _, height = box(page, name)
    x = left + page.run(f"atollPage.view.charts.get('{name}').chart.px({step})")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=top + height / 2)
    tip = f"atollPage.view.charts.get('{name}').tip"
    if page.run(f"{tip}.hidden"):
        return []
    return page.run(f"[{tip}.firstChild.textContent, ...[...{tip}.querySelectorAll('div')].map((row) => [...row.children].slice(1).map((cell) => cell.textContent).join(' '))]")


def check_functions(page):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "watch_functions.js")) as file:
        wrong = page.run(f"({file.read()})((name) => import('/' + name))")
    expect(wrong == [], "functions of the page:\n" + "\n".join(wrong or []))


def check_pointing(page):
    choose(page, "long", "short")
    drawn(page)
    tip = point(page, "loss", 219.99)
    expect_same([tip[0], sorted(row.split()[0] for row in tip[1:])], ["step 220", ["long", "short"]], "the tip near step 220")
    tip = point(page, "loss", 1500)
    expect_same([tip[0], len(tip), tip[1].split()[0]], ["step 1,500", 2, "long"], "the tip where one of two runs has ended")
    expect_same(page.run("atollPage.view.charts.get('loss').readout.textContent.split('·')[0].trim()"), "step 1,500", "the axis in the text below")
    point(page, "loss", 700)
    expect(page.run("atollPage.view.charts.get('held_out_loss').readout.textContent").endswith(" at 500"), "a value of another step says its step")
    # As small as it is: a tip says a value that a record has.
    steps = {json.loads(text)["step"]: json.loads(text)["loss"] for text in watch_runs.ordinary(1, 200) if "grad_norm" in text}
    for step in (11, 14, 16, 999, 1994):
        tip = point(page, "loss", step)
        said = int(tip[0].removeprefix("step ").replace(",", ""))
        value = float(next(row for row in tip[1:] if row.startswith("long ")).split()[1])
        expect(said in steps and abs(value - steps[said]) < 1e-3, f"the tip near {step} says {tip}")


def check_names(page):
    choose(page, "*")
    page.until("document.querySelectorAll('.key .chip').length === 8")
    names = page.run("[...document.querySelectorAll('.key .chip')].map((chip) => chip.textContent).sort()")
    expect_same(names, ["0001", "0002", "island-1", "long", "seed-1", "seed-2", "seed-3", "short"], "names of runs")
    expect_same(page.run("document.querySelector('li[title$=island-1] .chip').textContent"), "finished", "an island that has finished after 392 of 400 steps")


def touch(page, selector):
    x, y = page.run(f"(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; }})()")
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def check_touch(page):
    choose(page, "long")
    page.size(390, 844)
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    for name, count in (("short", 2), ("seed-1", 3), ("short", 2)):
        touch(page, f"li[title$={name}] .check")
        page.until(f"atollPage.chosenRuns().length === {count}")
    touch(page, "li[title$=seed-2] .name")
    page.until("atollPage.chosenRuns().length === 1 && atollPage.chosenRuns()[0].id.endsWith('/seed-2')")
    page.call("Emulation.setTouchEmulationEnabled", enabled=False)
    page.size(1280, 900)


def check_link(page):
    """What is shown, in another browser."""
    choose(page, "long", "short")
    page.run("atollPage.view.set({weight: .9, logY: true, axis: 'tokens', filter: 'o'}); atollPage.view.zoom([1e5, 5e5])")
    shown = "[atollPage.chosenRuns().map((run) => run.id).sort(), atollPage.view.state, atollPage.view.range, [...document.querySelectorAll('.chart')].map((chart) => chart.dataset.name), document.querySelector('select[aria-label=smoothing]').value]"
    page.run("atollPage.view.update(true)")
    here, address = page.run(shown), page.run("location.href")
    with browser.Page(dark=True) as other:
        other.open(address)
        other.until("globalThis.atollPage?.view?.range && document.querySelector('.chart')")
        drawn(other)
        expect_same(other.run(shown), here, f"what {address} shows")
        expect_same(other.run("location.href"), address, "the address of what a link shows")
        # The colours of series are those of the dark.
        colors = [other.run("atollPage.view.charts.get('loss').chart.lines.map((line) => line.color)"), page.run("atollPage.view.charts.get('loss').chart.lines.map((line) => line.color)")]
        expect(len(colors[0]) == 2 and not set(colors[0]) & set(colors[1]), f"colours in the dark and in the light: {colors}")
        # Another view keeps the choice; none of it is in a page that nobody has touched.
        other.run("location.hash = 'compare'")
        other.until("document.querySelectorAll('td.differs').length > 1 && location.hash.startsWith('#compare?run=')")
        other.open(address.split("#")[0])
        other.until("globalThis.atollPage?.view && document.querySelector('.chart')")
        expect_same(other.run("location.hash"), "", "the address of a page that nobody has touched")
        expect(not other.errors, f"the console says {other.errors}")
    page.run("atollPage.view.set({weight: 0, logY: false, axis: 'step', filter: ''}, true)")


def check_seeds(page):
    choose(page, "seed-1", "seed-2", "seed-3", "long")
    drawn(page)
    page.run("[...document.querySelectorAll('.bar button')].find((button) => button.textContent === 'mean of seeds').click()")
    lines = "atollPage.view.charts.get('loss').chart.lines"
    page.until(f"{lines}.length === 2 && {lines}[0].x0.length === 40")
    records = [[json.loads(text)["loss"] for text in watch_runs.ordinary(10 + seed, 40) if "grad_norm" in text] for seed in (1, 2, 3)]
    means = page.run(f"{lines}[0].mean")
    expect(all(abs(seen - sum(values) / 3) < 1e-9 for seen, values in zip(means, zip(*records))), f"the mean of three seeds: {means}")
    tip = point(page, "loss", 250)
    expect(any(row.startswith("mean of 3 seeds") and "±" in row for row in tip), f"the tip of a mean: {tip}")
    page.run("atollPage.view.set({mean: false})")


def check_saving(page):
    choose(page, "long", "short")
    drawn(page)
    page.run("(() => { globalThis.saved = []; URL.createObjectURL = (blob) => { saved.push({blob}); return '#'; }; HTMLAnchorElement.prototype.click = function () { saved.at(-1).name = this.download; }; })()")
    for count in (1, 2):
        page.run(f"document.querySelectorAll('.chart[data-name=loss] .head button')[{count - 1}].click()")
        page.until(f"saved.length === {count} && saved.at(-1).name")
    expect_same(page.run("saved.map((one) => one.name)"), ["loss.csv", "loss.png"], "names of files")
    rows = list(csv.reader(io.StringIO(page.run("saved[0].blob.text()"))))
    wanted = [["run", "step", "loss"]]
    for name, seed, count in (("long", 1, 200), ("short", 2, 50)):
        for text in watch_runs.ordinary(seed, count):
            row = json.loads(text)
            if "loss" in row:
                wanted.append([name, row["step"], row["loss"]])
    seen = [rows[0]] + sorted([[run.split("/")[-1], int(step), float(loss)] for run, step, loss in rows[1:]])
    expect(seen == wanted, f"the numbers of a chart: {seen[:3]} ..., {len(seen)} rows of {len(wanted)}")
    picture = base64.b64decode(page.run("saved[1].blob.arrayBuffer().then((bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))))"))
    expect(picture[:4] == b"\x89PNG" and len(picture) > 10000, f"a picture of {len(picture)} bytes")


def check(atoll, root):
    make(root)
    with Watch([atoll, "watch", root, "--listen", "127.0.0.1:0"]) as watch, browser.Page() as page:
        page.open(watch.url)
        page.until("globalThis.atollPage?.runs.size === 8 && document.querySelectorAll('.chart').length > 4")
        for one in (check_functions, check_pointing, check_names, check_touch, check_link, check_seeds, check_saving):
            one(page)
        expect(not page.errors, f"the console says {page.errors}")
