"""The command blocks of a page, with what the page's file in pages/ says of each.

tests/e2e/pages/NAME.toml belongs to the page NAME.md. It has a table for each block that needs
more than to end with exit code 0. The table's name is the block's first line of commands, without
its comment; two lines where two blocks begin alike. docs.py says what the keys mean.
"""

import dataclasses
import pathlib
import re
import sys
import tomllib

FOLDER = pathlib.Path(__file__).parent / "pages"
MARKS = {"not run", "exit", "prints", "before", "after", "with", "until", "meanwhile", "at once", "here"}
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!-- *(?P<mark>[a-z ]+):")


@dataclasses.dataclass
class Block:
    page: str
    line: int
    script: str
    marks: dict  # of texts, by mark

    def texts(self, mark):
        return self.marks.get(mark, [])

    def parts(self):
        """What runs of the script, what does not, and why."""
        lines, reasons = self.script.splitlines(), self.texts("not run")
        left_out = set()
        for reason in reasons:
            some = re.match(r"lines? (\d+)(?:-(\d+))?: ", reason)
            if not some:
                return "", self.script, reasons
            left_out |= set(range(int(some[1]) - 1, int(some[2] or some[1])))
        runs = [line for at, line in enumerate(lines) if at not in left_out]
        return "\n".join(runs), "\n".join(lines[at] for at in sorted(left_out)), reasons

    def begins_with(self, name):
        lines = [re.sub(r"\s+# .*", "", line) for line in self.script.splitlines()]
        wanted = name.splitlines()
        return lines[: len(wanted)] == wanted

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks_of(page, text):
    """The command blocks of a page, each with its marks; ends the program where these do not fit."""
    for comment in COMMENT.finditer(text):
        if comment["mark"] not in ("chart", "drawing"):
            line = text.count("\n", 0, comment.start()) + 1
            sys.exit(f"{page}:{line}: `{comment['mark']}` in a comment: it belongs in {_file_of(page)}")
    found = []
    for fence in FENCE.finditer(text):
        script = fence["code"] if fence["language"] in ("sh", "bash") else ""
        if fence["language"] == "":
            script = "\n".join(re.findall(r"^\$ (.*)", fence["code"], re.MULTILINE))
        if script:
            found.append(Block(page, text.count("\n", 0, fence.start()) + 1, script, {}))
    for name, marks in _tables_of(page).items():
        meant = [block for block in found if block.begins_with(name)]
        if len(meant) != 1 or meant[0].marks:
            what = "no block of its page begins" if not meant else "more than one block or table begins"
            sys.exit(f"{_file_of(page)}: {what} with\n{name}")
        meant[0].marks = marks
    return found


def files_without_page(pages):
    """The files in pages/ that belong to no page."""
    expected = {_file_of(page).name for page in pages}
    return sorted(file.name for file in FOLDER.iterdir() if file.name not in expected)


def _file_of(page):
    return FOLDER / (pathlib.PurePath(page).stem + ".toml")


def _tables_of(page):
    """For each block that the page's file names: the texts of each mark."""
    file = _file_of(page)
    if not file.exists():
        return {}
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        sys.exit(f"{file}: {error}")
    for name, marks in tables.items():
        unknown = set(marks) - MARKS if isinstance(marks, dict) else {"a value outside a table"}
        if unknown or not marks:
            sys.exit(f"{file}: [{name!r}]: {unknown or 'nothing'} is no mark: {', '.join(sorted(MARKS))}")
    return {
        name: {mark: text if isinstance(text, list) else [text] for mark, text in marks.items()}
        for name, marks in tables.items()
    }
