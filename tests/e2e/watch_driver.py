"""What the checks of the page share: a running `atoll watch`, and what is done in a browser that has it open."""

import json
import re
import subprocess
import threading


class Watch:
    """A running `atoll watch`, or another command that has --watch."""

    def __init__(self, arguments, pattern=r"(http://\S+)"):
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(pattern, line):
                self.url = found.group(1)
                break
        else:
            raise RuntimeError("it serves nothing: " + "".join(self.lines))
        # What it says further on must not fill the pipe.
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def expect_same(seen, wanted, what):
    expect(seen == wanted, f"{what}: {seen!r}, not {wanted!r}")


def opened(page, url, runs):
    page.open(url)
    page.until(f"globalThis.atollPage?.runs.size >= {runs} && document.querySelectorAll('.chart').length > 4")
    page.until("document.querySelector('.readout').textContent.length > 2")


def choose(page, *names):
    page.run(f"(() => {{ const a = atollPage; a.chosen = new Set([...a.runs.keys()].filter((id) => {json.dumps(names)}.some((n) => id.endsWith('/' + n) || n === '*'))); a.choiceChanged(); }})()")


def drawn(page):
    """Waits until what is chosen is there and drawn."""
    page.until("(() => { const v = atollPage.view; return !!v && !v.isLoading && atollPage.chosenRuns().every((r) => atollPage.store.parts.get(r.id)) && v.drawnAt >= v.loadedAt; })()")


def look(page, hash, ready):
    page.run(f"location.hash = '{hash}'")
    page.until(ready)


def search(page, text):
    page.run(f"(() => {{ const s = document.getElementById('search'); s.value = {json.dumps(text)}; s.dispatchEvent(new Event('input')); s.blur(); }})()")


def found(page, text, *names):
    """Searches, and waits until these runs and no others are listed."""
    search(page, text)
    page.until(f"[...document.querySelectorAll('#runs li')].map((item) => item.title.split('/').pop()).sort().join() === {json.dumps(','.join(names))}")
