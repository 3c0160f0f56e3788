"""What the checks of the chat page share: what is done in a browser that has it open."""

import json
import os

from watch_driver import expect, expect_same

HERE = os.path.dirname(os.path.abspath(__file__))
IDLE = "!atollChat.running()"


def opened(page, url):
    page.open(url)
    page.until("globalThis.atollChat?.models.models.length === 2 && !document.getElementById('model').disabled")


def type_into(page, element, text):
    """Types in place of what a field has."""
    page.run(f"{element}.focus(), document.activeElement.select()")
    page.call("Input.insertText", text=text)


def say(page, text):
    type_into(page, "document.getElementById('compose')", text)
    page.key("Enter")
    page.until("document.getElementById('compose').value === ''")


def click(page, selector, text):
    """Clicks the first of these elements that has this text, once it is there and may be clicked."""
    page.until(f"(() => {{ const one = [...document.querySelectorAll({json.dumps(selector)})].find((node) => node.textContent === {json.dumps(text)} && !node.disabled); one?.click(); return one; }})()")


def answers(page):
    return page.run("document.querySelectorAll('article.assistant').length")


def expect_quiet(page, stub):
    """The console says nothing, the policy holds, and nothing is asked of another host."""
    expect(not page.errors, f"the console says {page.errors}")
    away = [url for url in page.requests if not url.startswith(stub.url)]
    expect(not away, f"requests leave the host: {away}")
