"""Conversations of the chat page: kept, found, renamed, deleted, taken along; and the page on a phone."""

import json
import os
import tempfile

import browser
import chat_stub
from chat_driver import IDLE, click, expect, expect_quiet, expect_same, opened, say, type_into

LIST = "[...document.querySelectorAll('#conversations .name bdi')].map((name) => name.textContent)"


def answered(page, text):
    say(page, text)
    page.until(f"{IDLE} && document.querySelector('article:last-child .markdown table')")


def listed(page, *titles):
    page.until(f"JSON.stringify({LIST}) === {json.dumps(json.dumps(list(titles), separators=(',', ':')))}")


def check_list():
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        page.until("document.querySelector('#conversations .empty')")
        answered(page, "About reefs")
        click(page, "#new", "new chat")
        answered(page, "About <b>tides</b>")
        listed(page, "About <b>tides</b>", "About reefs")

        # A reload shows the same conversation; the list opens others.
        page.run("globalThis.isOld = true, location.reload()")
        page.until("globalThis.isOld === undefined && document.querySelector('article:last-child .markdown table')")
        opened_title = "document.getElementById('title').textContent"
        expect_same(page.run(opened_title), "About <b>tides</b>", "what is shown after a reload")
        click(page, "#conversations .name", "About reefs")
        page.until(f"{opened_title} === 'About reefs' && document.querySelector('#conversations li.shown').innerText.includes('About reefs')")

        # Search, in titles and in messages.
        page.call("Input.dispatchKeyEvent", type="keyDown", key="k", modifiers=2)
        page.until("document.activeElement.id === 'search'")
        type_into(page, "document.getElementById('search')", "TIDES about")
        listed(page, "About <b>tides</b>")
        type_into(page, "document.getElementById('search')", "suvadiva")
        listed(page, "About <b>tides</b>", "About reefs")
        type_into(page, "document.getElementById('search')", "whales")
        page.until("document.querySelector('#conversations .empty')?.textContent === 'nothing is found'")
        page.key("Escape")
        listed(page, "About <b>tides</b>", "About reefs")

        click(page, "#conversations li.shown .rename", "✎")
        type_into(page, "document.querySelector('#conversations input')", "Corals")
        page.key("Enter")
        listed(page, "About <b>tides</b>", "Corals")
        answered(page, "More")
        listed(page, "Corals", "About <b>tides</b>")
        click(page, "#conversations li.shown .delete", "✕")
        listed(page, "About <b>tides</b>")
        click(page, "#notice button", "undo")
        listed(page, "Corals", "About <b>tides</b>")
        page.until("document.querySelectorAll('article').length === 4")
        click(page, "article:nth-child(3) .foot button", "delete")
        page.until("document.querySelectorAll('article').length === 2")
        click(page, "#notice button", "undo")
        page.until("document.querySelectorAll('article').length === 4")

        # Another tab has changed what is shown here.
        page.run("(async () => { const other = structuredClone(atollChat.conversation); other.nodes[0].text = 'of another tab'; other.changed += 1; await atollChat.store.put(other); new BroadcastChannel('atoll-chat').postMessage({id: other.id}); })()")
        page.until("document.querySelector('article.user > .plain').textContent === 'of another tab'")

        # An answer goes on while another conversation is shown, and a reload keeps what had come.
        click(page, "#new", "new chat")
        say(page, "slowly")
        page.until("atollChat.running()?.node.text === 'An **atoll** is'")
        click(page, "#conversations .name", "Corals")
        page.until(f"{IDLE} && document.querySelector('#conversations .dot')")
        stub.gate.set()
        page.until("!document.querySelector('#conversations .dot')")
        click(page, "#conversations .name", "slowly")
        page.until("document.querySelector('article:last-child .markdown table')")
        expect_quiet(page, stub)


def check_files():
    with tempfile.TemporaryDirectory(prefix="atoll-chat-") as folder, chat_stub.Stub() as stub, browser.Page() as page:
        page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        opened(page, stub.url)
        answered(page, "One")
        click(page, "#new", "new chat")
        answered(page, "Two")
        click(page, "#export", "export all")
        path = page._until(lambda: next((os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".json")), None), "no file")
        page._until(lambda: os.path.getsize(path) > 0, "an empty file")
        with open(path) as file:
            kept = json.load(file)
        expect_same(sorted(one["title"] for one in kept["conversations"]), ["One", "Two"], "what was exported")

        def bring(value):
            with open(path, "w") as file:
                file.write(value if isinstance(value, str) else json.dumps(value))
            node = page.call("DOM.querySelector", nodeId=page.call("DOM.getDocument")["root"]["nodeId"], selector="#file")["nodeId"]
            page.call("DOM.setFileInputFiles", nodeId=node, files=[path])

        for title in ("One", "Two"):
            page.run(f"document.querySelector('#conversations [aria-label=\"Delete {title}\"]').click()")
            page.until(f"!{LIST}.includes('{title}')")
        bring(kept)
        listed(page, "Two", "One")
        # What is here already is not doubled; a copy that differs comes beside it.
        kept["conversations"][0]["changed"] += 1
        bring(kept)
        page.until(f"{LIST}.length === 3")
        bring("{}")
        page.until("document.getElementById('notice').innerText.includes('was not exported by this page')")
        kept["conversations"][1]["nodes"][0]["parent"] = 99
        bring(kept)
        page.until("document.getElementById('notice').innerText.includes('Conversation 2 of the file is damaged')")
        expect_same(page.run(f"{LIST}.length"), 3, "a damaged file brings nothing")
        expect_quiet(page, stub)


def check_phone():
    with chat_stub.Stub() as stub, browser.Page(390, 760) as page:
        opened(page, stub.url)
        answered(page, "On a phone, with_a_long_word_" + "x" * 80)
        expect(page.run("document.documentElement.scrollWidth <= 390 && document.getElementById('messages').scrollWidth <= 390"), "it fits")
        seen = "getComputedStyle(document.getElementById('drawer')).visibility"
        page.until(f"{seen} === 'hidden'")
        click(page, "#menu", "☰")
        page.until(f"{seen} === 'visible' && document.getElementById('menu').getAttribute('aria-expanded') === 'true'")
        page.key("Escape")
        page.until(f"{seen} === 'hidden'")
        click(page, "#menu", "☰")
        click(page, "#new", "new chat")
        page.until(f"{seen} === 'hidden' && document.querySelector('.welcome')")
        expect_quiet(page, stub)


CHECKS = (check_list, check_files, check_phone)
