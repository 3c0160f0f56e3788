#!/usr/bin/env python3
"""The chat page in a real browser, from a real `atoll serve`: served_page.py URL.

The server's model has one token a character and answers chats. Exits with 77 where there is no Chromium."""

import json
import os
import sys
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
from chat_driver import IDLE, answers, click, expect, expect_same, say


def metric(url, name):
    """A number of /metrics."""
    with urllib.request.urlopen(url + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise SystemExit(f"/metrics has no {name}")


def answer_of(url, messages, **more):
    """What the server says to a program that asks the same."""
    body = {"messages": messages, "temperature": 0, "max_tokens": 40, **more}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def settings(page, **values):
    page.run(f"Object.assign(atollChat.conversation.settings, {json.dumps(values)})")


def shown(page):
    """The text of the last answer as the page has it."""
    return page.run("atollChat.conversation.nodes.at(-1).text")


def check(url):
    with browser.Page() as page:
        page.open(url)
        page.until("globalThis.atollChat?.models.models.length === 1 && !document.getElementById('model').disabled")
        page.until("document.activeElement.id === 'compose'")

        # The page's answer is the one that a program gets.
        settings(page, temperature=0, max_tokens=40)
        say(page, "the sea")
        page.until(f"{IDLE} && document.querySelector('.stats')")
        first = shown(page)
        expect_same(first, answer_of(url, [{"role": "user", "content": "the sea"}]), "the page's answer")
        expect(" · 40 tokens · " in page.run("document.querySelector('.stats').textContent"), "the numbers of the answer")

        # The next one follows the conversation; again gives a version beside it, with the same bits.
        say(page, "and a ring")
        page.until(f"{IDLE} && document.querySelectorAll('.stats').length === 2")
        talk = [{"role": "user", "content": "the sea"}, {"role": "assistant", "content": first}, {"role": "user", "content": "and a ring"}]
        second = shown(page)
        expect_same(second, answer_of(url, talk), "the second answer")
        click(page, "article:last-child .foot button", "again")
        page.until(f"{IDLE} && document.querySelector('article:last-child .versions')?.innerText.replace(/\\s/g, '') === '‹2/2›'")
        expect_same(shown(page), second, "the answer to the same again")

        # Stop frees the server.
        settings(page, temperature=0, max_tokens=None)
        cancelled = metric(url, "atoll_requests_cancelled_total")
        say(page, "is wide")
        page.until("atollChat.running()?.node.text.length > 0")
        page.key("Escape")
        page.until(f"{IDLE} && document.body.innerText.includes('Stopped.')")
        page._until(lambda: metric(url, "atoll_requests_running") == 0, "the server still generates")
        expect_same(metric(url, "atoll_requests_cancelled_total"), cancelled + 1, "requests that were cancelled")

        # What the server refuses is said in its words.
        say(page, "a ring of islands " * 1000)
        page.until(f"{IDLE} && document.querySelector('.error')?.innerText.startsWith('The server does not take this request: the prompt has')")

        # The conversation is there again behind a reload; the address names it.
        expect_same(answers(page), 4, "answers that are shown")
        page.run("globalThis.isOld = true, location.reload()")
        page.until("!globalThis.isOld && globalThis.atollChat?.models.models.length === 1 && document.querySelectorAll('article.assistant').length === 4")
        expect(not [line for line in page.errors if "400" not in line], f"the console says {page.errors}")
        expect(all(asked.startswith(url) for asked in page.requests), "requests leave the host")


if __name__ == "__main__":
    if browser.find() is None:
        sys.exit(77)
    check(sys.argv[1])
