"""What mkdocs calls while it builds the site (`hooks` in mkdocs.yml).

The site is docs/ and bench/results/. A mark in a page, a comment that no reader sees, becomes a
figure: `<!-- drawing: NAME -->` the drawing docs/drawings/NAME.*, `<!-- chart: ... -->` a chart of
the table that follows. Whatever is wrong (a page without a place in the menu, results without a
chart, a link to a heading that is not there) ends the build with a line that says where.
"""

import html
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))

import charts  # noqa: E402
import drawings  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

RESULTS = "bench/results/"
MARK = re.compile(r"<!-- *(?P<kind>chart|drawing): *(?P<text>.*?) *-->", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
FENCE_BELOW = re.compile(r"\s*```[^\n]*\n.*?\n```\n", re.DOTALL)

_root = pathlib.Path(__file__).parents[2]
_figures = {}


def on_config(config):
    """Fills those parts of the menu that are a whole folder."""

    def filled(entry):
        if isinstance(entry, list):
            return [filled(each) for each in entry]
        if isinstance(entry, dict):
            return {title: filled(each) for title, each in entry.items()}
        return _pages_of(entry) if entry.endswith("/") else entry

    config["nav"] = filled(config["nav"])
    _every_page_is_in(config["nav"])
    return config


def _pages_of(folder):
    where = _root if folder == RESULTS else _root / "docs"
    pages = [page.relative_to(where).as_posix() for page in (where / folder).glob("*.md")]
    return sorted(pages, key=lambda page: (not page.endswith("/index.md"), page))


def _every_page_is_in(nav):
    listed = set(re.findall(r"[\w./-]+\.md", str(nav)))
    docs = _root / "docs"
    for page in sorted(docs.rglob("*.md")):
        name = page.relative_to(docs).as_posix()
        if name not in listed:
            raise PluginError(f"docs/{name} is not in the menu: give it a place in mkdocs.yml")


def on_files(files, config):
    for file in list(files):
        if file.src_uri.startswith("drawings/"):
            files.remove(file)
    for page in _pages_of(RESULTS):
        files.append(File(page, str(_root), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, page, config, files):
    page.title = _plain_title(page.title)
    name = page.file.src_uri
    if name.startswith(RESULTS):
        markdown = markdown.replace("](../../docs/", "](../../")
        if "<!-- chart:" not in markdown:
            raise PluginError(f"{name} has no chart: put a `<!-- chart: ... -->` before a table")
    else:
        to_root = "../" * name.count("/")
        markdown = markdown.replace(f"]({to_root}../{RESULTS}", f"]({to_root}{RESULTS}")
    return COMMENT.sub("", _with_figures(markdown, name))


def _plain_title(title):
    """A title for the menu: no Markdown, and nothing of the machine that all results share."""
    return re.sub(r",? (on )?2 cores of .*", "", title.replace("`", ""))


def _with_figures(markdown, name):
    """Puts an empty element where each figure belongs; on_page_content fills it."""
    made = []
    at = 0
    for mark in MARK.finditer(markdown):
        if mark.start() < at:
            continue
        end = mark.end()
        try:
            if mark["kind"] == "chart":
                figure = charts.chart(mark["text"], markdown[end:])
            else:
                drawing, _, rest = mark["text"].partition(",")
                figure = drawings.drawing(_root / "docs/drawings", drawing.strip())
                if rest.strip() == "instead of what follows":
                    end += FENCE_BELOW.match(markdown, end).end() - end
        except (ValueError, OSError) as error:
            line = markdown.count("\n", 0, mark.start()) + 1
            raise PluginError(f"{name}:{line}: {mark['kind']}: {error}") from error
        key = f"figure-{len(_figures)}"
        _figures[key] = figure
        made.append(markdown[at : mark.start()] + f'\n<div id="{key}"></div>\n\n')
        at = end
    return "".join(made) + markdown[at:]


def on_page_content(content, page, config, files):
    return re.sub(r'<div id="(figure-\d+)"></div>', lambda found: _figures[found[1]], content)


def on_post_build(config):
    """Links to headings must find them, and no page may ask another host for anything."""
    site = pathlib.Path(config["site_dir"])
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    ids = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    for page, text in pages.items():
        if page.name == "404.html":
            continue
        for link in re.findall(r'href="([^":]*)#([^"]+)"', text):
            target = (page.parent / link[0]).resolve() if link[0] else page
            if target in ids and html.unescape(link[1]) not in ids[target] | {"__search"}:
                raise PluginError(f"{page.relative_to(site)}: there is no {link[0]}#{link[1]}")
        outside = re.search(r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//[^"]*"', text)
        outside = outside or re.search(r'<link[^>]*stylesheet[^>]*href="(?:https?:)?//', text)
        if outside:
            raise PluginError(f"{page.relative_to(site)} asks another host: {outside[0]}")
