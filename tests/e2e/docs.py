#!/usr/bin/env python3
"""Runs the command blocks of README.md and docs/*.md and compares them with what the pages state.

    python3 tests/e2e/docs.py build/release/bin/atoll            # every page
    python3 tests/e2e/docs.py build/release/bin/atoll ranks.md   # one of them

Each page has an empty directory of its own, with `recipes/`, `dev`, `README.md` and
`build/release/bin/atoll` in it and atoll on the PATH. Its blocks (```sh, and lines after `$ ` in blocks without a language) run there
one after the other, each as one script that ends at the first command that fails. Its exit code
must be 0. What else holds of a block, tests/e2e/pages/PAGE.toml says, in a table that is named after
the block's first line:

    "not run" = 'REASON'           it cannot run in a test; its commands and options are looked up.
                                   'lines 2-3: REASON' or 'line 2: REASON': those lines cannot
    exit = '2'                     the exit code that the page states
    prints = 'REGEX'               what its output must have
    until = 'REGEX'                it runs until it is stopped: SIGTERM once it has printed this
    meanwhile = 'REGEX'            it runs beside the blocks that follow, which begin once it has
                                   printed this, and must end with 0 after the last of them
    "at once" = 'REGEX'            its lines run beside each other, those after the first from when
                                   this is printed; with '' from the start
    here = 'alpha is 127.0.0.1'    a line each: words that are of other machines, and what to
                                   take for them here, to the page's end; `7411 is port`: a free one
    before = 'COMMANDS'            makes what the reader is to have
    after = 'COMMANDS'             must succeed afterwards; $OUTPUT is the file with the block's output
    with = 'train --a.b=1'         from here to the page's end, `atoll train` gets these arguments
                                   too, but for those that the block gives itself; % is a new number

Several texts of one kind are a list. A table that fits no block, or more than one, is an error.

What pages name in `code` must be there too: files, tests, settings. $TEXT is a file of English
text. What did not run is listed with its reason and counted: the number must be the one below.
"""

import concurrent.futures
import os
import pathlib
import sys
import tempfile
import time

from docs_blocks import blocks_of, files_without_page
from docs_names import ROOT, Names
from docs_page import Page

NOT_RUN = 32  # each with its reason; run one more rather than raise this


def run_page(page, atoll, text, names):
    """Runs the blocks of a page. Lines that tell of each, and how many failed and did not run."""
    lines, failed, not_run = [], 0, 0
    path = ROOT / page
    with tempfile.TemporaryDirectory(prefix="atoll-docs-") as top:
        directory = Page(atoll, text, pathlib.Path(top))
        markdown = path.read_text(encoding="utf-8")
        for wrong in names.stale(markdown):
            failed += 1
            lines.append(f"FAILED             {page}:{wrong}")
        for block in blocks_of(page, markdown):
            start = time.monotonic()
            runs, left_out, reasons = block.parts()
            wrong = names.wrong(left_out) or (directory.run(block) if runs else "")
            took = time.monotonic() - start
            if wrong:
                failed += 1
                told = wrong.rstrip().splitlines()
                told[1:] = told[1:][-30:]
                lines.append(f"FAILED   {took:6.1f} s  {block.place}: " + "\n    ".join(told))
                break  # what follows may need it
            lines += [f"not run            {block.place}: {reason}" for reason in reasons]
            not_run += len(reasons)
            if runs:
                lines.append(f"ok       {took:6.1f} s  {block.place}")
        wrong = directory.end(failed)
        if wrong:
            failed += 1
            lines.append(f"FAILED             meanwhile, {wrong.rstrip()}")
    return lines, failed, not_run


def english(folder):
    """A text to train on: what stands in the pages themselves."""
    file = folder / "text"
    pages = sorted((ROOT / "docs").rglob("*.md"))
    file.write_text("\n\n".join(page.read_text(encoding="utf-8") for page in pages), encoding="utf-8")
    return file


def main():
    atoll = str(pathlib.Path(sys.argv[1]).resolve())
    every = ["README.md"] + sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
    pages = [page for page in every if not sys.argv[2:] or page.split("/")[-1] in sys.argv[2:]]
    if not pages:
        sys.exit(f"no page is called {' or '.join(sys.argv[2:])}")
    for file in files_without_page(every):
        sys.exit(f"tests/e2e/pages/{file}: there is no page of this name")
    names = Names(atoll)
    failed = not_run = ran = 0
    with tempfile.TemporaryDirectory(prefix="atoll-docs-") as top:
        text = english(pathlib.Path(top))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for lines, failures, skipped in pool.map(lambda page: run_page(page, atoll, text, names), pages):
                print("".join(line + "\n" for line in lines), end="", flush=True)
                failed, not_run = failed + failures, not_run + skipped
                ran += len(lines) - skipped - failures
    print(f"{ran} blocks ran, {not_run} did not, {failed} failed")
    if failed:
        sys.exit(1)
    if pages == every and not_run != NOT_RUN:
        sys.exit(f"{not_run} blocks did not run, and {__file__} says {NOT_RUN}: is the change meant?")


if __name__ == "__main__":
    main()
