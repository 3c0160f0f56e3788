"""Charts of the tables in the documentation, drawn when the site is built.

A mark stands before the table whose numbers it draws, and names columns as the table heads do:

    <!-- chart: bars; of: forward GFLOP/s | backward GFLOP/s; by: T | head_dim; unit: GFLOP/s -->
    <!-- chart: lines; of: threads | copy; by: bytes; unit: GB/s -->

`of` are columns of numbers, each a series; `by` the columns that name a row. `NAME (2)` takes a
cell's second number instead of its first, `NAME [2]` the second column of that head, `NAME as WORDS`
calls the series so, and `-` is a column without a head. `scale: log` where values lie far apart. `rows: 1-3, 5` takes
some rows only. `title` is what stands above; else what the table's first column is headed.
Numbers are never written here: a chart of another number needs another table.
"""

import html
import math
import re

NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?")
SIZES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 1e3, "MB": 1e6, "GB": 1e9}
KEYS = {"of", "by", "unit", "scale", "rows", "title"}
LETTER = 7.0  # pixels of a letter of 12 pixels in the widest of the usual fonts
WIDTH = 720


def chart(mark, below):
    """The chart that `mark` asks for, of the first table in `below`, as an HTML figure."""
    kind, options = _options(mark)
    head, rows = table(below)
    rows = _chosen(rows, options.get("rows", ""))
    by = [_column(head, name) for name in options["by"].split("|")]
    series = []
    for name in options["of"].split("|"):
        name, _, called = name.partition(" as ")
        pick = re.fullmatch(r"(.*?)(?: \((\d)\))?", name.strip())
        column = _column(head, pick[1])
        values = [number(row[column], int(pick[2] or 1)) for row in rows]
        if all(value is None for value in values):
            raise ValueError(f"the column `{pick[1]}` has no numbers")
        series.append((called.strip() or plain(head[column]), values))
    said = [any(values[at] is not None for _, values in series) for at in range(len(rows))]
    rows = [row for row, some in zip(rows, said) if some]
    series = [(name, [v for v, some in zip(values, said) if some]) for name, values in series]
    labels = [", ".join(plain(row[column]) for column in by if plain(row[column])) for row in rows]
    title = options.get("title", "")
    unit = options.get("unit", "")
    log = options.get("scale") == "log"
    if kind == "bars":
        svg = _bars(labels, series, unit, log)
    else:
        svg = _lines(labels, series, unit, log)
    caption = f"<figcaption>{html.escape(title)}</figcaption>" if title else ""
    return f'<figure class="chart">{caption}{svg}</figure>'


def _options(mark):
    kind, *rest = (part.strip() for part in re.split(r";(?= *\w+:)", mark))
    if kind not in ("bars", "lines"):
        raise ValueError(f"a chart is `bars` or `lines`, not `{kind}`")
    options = {}
    for part in rest:
        key, colon, value = part.partition(":")
        if not colon or key.strip() not in KEYS:
            raise ValueError(f"`{part}` is none of {', '.join(sorted(KEYS))}")
        options[key.strip()] = value.strip()
    for needed in ("of", "by"):
        if needed not in options:
            raise ValueError(f"`{needed}` is missing")
    return kind, options


def table(text):
    """Head and rows of the first Markdown table in `text`, cells as they are written."""
    lines = text.split("\n")
    for at in range(len(lines) - 1):
        if lines[at].startswith("|") and re.fullmatch(r"\|[-:| ]+\|", lines[at + 1].strip()):
            head = _cells(lines[at])
            rows = []
            for line in lines[at + 2 :]:
                if not line.startswith("|"):
                    break
                rows.append(_cells(line))
                if len(rows[-1]) != len(head):
                    raise ValueError(f"the row `{line}` has {len(rows[-1])} cells, not {len(head)}")
            return head, rows
    raise ValueError("no table follows")


def _cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _column(head, name):
    wanted, which = re.fullmatch(r"(.*?)(?: \[(\d)\])?", name.strip()).groups()
    if wanted == "-":
        wanted = ""
    found = [at for at, cell in enumerate(head) if plain(cell) == wanted]
    if len(found) >= int(which or 1):
        return found[int(which or 1) - 1]
    raise ValueError(f"no column is headed `{wanted}`; there are: {' | '.join(map(plain, head))}")


def _chosen(rows, which):
    if not which:
        return rows
    chosen = []
    for part in which.split(","):
        first, _, last = part.strip().partition("-")
        chosen += rows[int(first) - 1 : int(last or first)]
    if not chosen:
        raise ValueError(f"there are no rows {which}")
    return chosen


def plain(cell):
    """A cell without Markdown."""
    return re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", cell).strip()


def number(cell, which=1):
    """The number that stands in a cell in that place, or None."""
    found = NUMBER.findall(plain(cell))
    if len(found) < which:
        return None
    return float(found[which - 1].replace(",", "").replace("−", "-"))


def _said(value):
    """A value as the table has it: no digits are invented."""
    text = f"{value:,.12g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:.3g}" if 0 < abs(value) < 1e-4 else text


def _ticks(low, high, log):
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return [10.0**power for power in range(first, max(last, first + 1) + 1)]
    step = 10 ** math.floor(math.log10((high - low) or 1))
    while (high - low) / step < 4:
        step /= 2 if step * 5 % 1 else 2.5 if str(step)[0] == "5" else 2
    ticks = [step * at for at in range(math.floor(low / step), math.ceil(high / step) + 1)]
    return [round(tick, 10) for tick in ticks]


def _scale(series, log, from_zero):
    values = [value for _, each in series for value in each if value is not None]
    if log:
        values = [value for value in values if value > 0]
    low, high = min(values), max(values)
    if from_zero and not log:
        low, high = min(low, 0), max(high, 0)
    ticks = _ticks(low, high, log)
    turn = math.log10 if log else float

    def place(value):
        return (turn(value) - turn(ticks[0])) / ((turn(ticks[-1]) - turn(ticks[0])) or 1)

    return ticks, place


def _tag(name, text="", **attributes):
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<{name}{said}>{text}</{name}>"


def _num(value):
    return f"{value:.1f}"


def _write(x, y, text, anchor="start", **more):
    return _tag("text", html.escape(text), x=_num(x), y=_num(y), text_anchor=anchor, **more)


def _legend(series, unit, top):
    """A line or more of names with their colours; says also the unit. Returns parts and height."""
    parts, x, y = [], 8.0, top
    entries = [(name, number) for number, (name, _) in enumerate(series)]
    if len(entries) == 1:
        name = entries[0][0] if not unit or unit in entries[0][0] else f"{entries[0][0]}, {unit}".lstrip(", ")
        return [_write(x, y + 12, name)], 22
    for name, number_ in entries:
        room = len(name) * LETTER + 34
        if x + room > WIDTH and x > 8:
            x, y = 8.0, y + 18
        parts.append(_tag("rect", x=_num(x), y=_num(y + 2), width=12, height=12, rx=2, class_=f"s{number_ % 6}"))
        parts.append(_write(x + 18, y + 12, name))
        x += room
    if unit and not all(unit in name for name, _ in entries):
        if x + (len(unit) + 4) * LETTER > WIDTH:
            x, y = 8.0, y + 18
        parts.append(_write(x, y + 12, f"({unit})", class_="faint"))
    return parts, y - top + 24


def _svg(height, series, labels, parts):
    said = html.escape(", ".join(name for name, _ in series if name) or "values")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
        f' aria-label="{said}" style="max-width:{WIDTH}px">{"".join(parts)}</svg>'
    )


def _wrapped(label, most):
    """The lines of a label, none of more than `most` letters where words allow it."""
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _bars(labels, series, unit, log):
    """Rows from top to bottom, a bar for each series, its number behind it."""
    ticks, place = _scale(series, log, from_zero=True)
    wrapped = [_wrapped(label, 34) for label in labels]
    left = 16 + max(len(line) for lines in wrapped for line in lines) * LETTER
    room = max(len(_said(v)) for _, each in series for v in each if v is not None) * LETTER + 10
    span = WIDTH - left - room - 8
    parts, y = _legend(series, unit, 0)
    top = y
    rows = []
    for row, lines in enumerate(wrapped):
        bars = [(at, each[row]) for at, (_, each) in enumerate(series) if each[row] is not None]
        height = max(len(bars) * 16, len(lines) * 15) + 8
        middle = y + height / 2
        for at, line in enumerate(lines):
            rows.append(_write(left - 8, middle + 4 + (at - (len(lines) - 1) / 2) * 15, line, "end"))
        for at, (number_, value) in enumerate(bars):
            here = middle + (at - len(bars) / 2) * 16 + 1
            zero = left + span * (0 if log else place(0))
            end = left + span * (place(value) if not log or value > 0 else 0)
            size = {"width": _num(max(abs(end - zero), 1)), "height": 14}
            rows.append(_tag("rect", x=_num(min(zero, end)), y=_num(here), **size, class_=f"s{number_ % 6}"))
            rows.append(_write(max(zero, end) + 5, here + 11.5, _said(value), class_="value"))
        y += height
    for tick in ticks:
        x = left + span * place(tick)
        parts.append(_tag("line", x1=_num(x), y1=_num(top), x2=_num(x), y2=_num(y), class_="grid"))
    return _svg(y + 6, series, labels, parts + rows)


def _position(labels):
    """Where on a line from 0 to 1 each label belongs: by size where they are numbers."""
    values = []
    for label in labels:
        found = re.fullmatch(r"([\d.,]+) ?(\w*)", label)
        if not found or found[2] not in SIZES | {"": 1}:
            return [at / max(len(labels) - 1, 1) for at in range(len(labels))]
        values.append(float(found[1].replace(",", "")) * (SIZES | {"": 1})[found[2]])
    if min(values) > 0 and max(values) / min(values) > 30:
        values = [math.log(value) for value in values]
    low, high = min(values), max(values)
    return [(value - low) / ((high - low) or 1) for value in values]


def _lines(labels, series, unit, log):
    """Points from left to right, joined for each series."""
    ticks, place = _scale(series, log, from_zero=False)
    parts, top = _legend(series, unit, 0)
    height = 260
    left = 14 + max(len(_said(tick)) for tick in ticks) * LETTER
    right = WIDTH - max(12, len(labels[-1]) * LETTER / 2 + 4)
    for tick in ticks:
        y = top + 8 + height * (1 - place(tick))
        parts.append(_tag("line", x1=_num(left), y1=_num(y), x2=_num(right), y2=_num(y), class_="grid"))
        parts.append(_write(left - 6, y + 4, _said(tick), "end", class_="faint"))
    across = [left + 12 + (right - left - 12) * at for at in _position(labels)]
    taken = -1e9
    for x, label in sorted(zip(across, labels)):
        half = len(label) * LETTER / 2
        if x - half < taken + 6:
            continue
        taken = x + half
        parts.append(_write(x, top + height + 28, label, "middle", class_="faint"))
    for number_, (_, values) in enumerate(series):
        shown = [(x, v) for x, v in zip(across, values) if v is not None and (v > 0 or not log)]
        points = [(x, top + 8 + height * (1 - place(v))) for x, v in shown]
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(_tag("path", d=path, class_=f"l{number_ % 6}"))
        for x, y in points:
            parts.append(_tag("circle", cx=_num(x), cy=_num(y), r=3.5, class_=f"s{number_ % 6}"))
    return _svg(top + height + 38, series, labels, parts)
