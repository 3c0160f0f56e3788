"""The command blocks of a page, with the marks that stand before them; docs.py says what they mean."""

import dataclasses
import re
import sys

MARKS = {"not run", "exit", "prints", "before", "after", "with", "until", "meanwhile", "at once", "here"}
PART = re.compile(
    r"<!-- *(?P<mark>[a-z ]+): *(?P<text>.*?) *-->|^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclasses.dataclass
class Block:
    page: str
    line: int
    script: str
    marks: list  # of (mark, text), in their order

    def texts(self, mark):
        return [text for each, text in self.marks if each == mark]

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

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks_of(path, text):
    """The command blocks of a page, each with the marks that stand before it."""
    found, marks, end = [], [], 0
    for part in PART.finditer(text):
        if text[end : part.start()].strip():
            marks = []
        end = part.end()
        line = text.count("\n", 0, part.start()) + 1
        if part["mark"]:
            if part["mark"] in MARKS:
                marks.append((part["mark"], part["text"]))
            elif part["mark"] not in ("chart", "drawing"):
                sys.exit(f"{path}:{line}: `{part['mark']}` is no mark: {', '.join(sorted(MARKS))}")
            continue
        script = part["code"] if part["language"] in ("sh", "bash") else ""
        if part["language"] == "":
            script = "\n".join(re.findall(r"^\$ (.*)", part["code"], re.MULTILINE))
        if script:
            found.append(Block(path, line, script, marks))
        elif marks:
            sys.exit(f"{path}:{line}: {marks[0][0]}: what follows is no block of commands")
        marks = []
    return found
