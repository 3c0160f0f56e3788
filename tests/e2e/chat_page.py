#!/usr/bin/env python3
"""The chat page of `atoll serve` in a real browser: chat_page.py [PICTURES].

It talks to the stand-in of chat_stub.py, which answers as a check wants and when it wants; tests/e2e/serve covers the real server.
Exits with 77 where there is no Chromium. PICTURES: a folder for pictures of the page, instead of the checks."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
import chat_keeping
import chat_stub
from chat_driver import HERE, IDLE, answers, click, expect, expect_quiet, expect_same, opened, say, type_into


def check_functions():
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        for name in ("chat_markdown.js", "chat_functions.js", "chat_answers.js"):
            with open(os.path.join(HERE, name)) as file:
                wrong = page.run(f"({file.read()})((name) => import('/' + name))")
            expect(wrong == [], f"{name}:\n" + "\n".join(wrong or []))


def check_answers():
    """Answers that stream, stop, come again, and have other versions."""
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        page.until("document.activeElement.id === 'compose'")
        say(page, "What is an atoll?")
        page.until(f"{IDLE} && document.querySelector('.markdown table')")
        expect_same(page.run("[...document.querySelector('.markdown').children].map((node) => node.tagName)"), ["P", "OL", "DIV", "DIV", "P"], "blocks of the answer")
        expect_same(page.run("document.querySelector('.code code').textContent"), "def depth(years, rate=0.0001):\n    return years * rate", "the code")
        expect_same(page.run("(() => { const a = document.querySelector('.markdown a'); return [a.href, a.rel, a.target]; })()"), ["https://example.org/atolls", "noopener noreferrer nofollow", "_blank"], "the link")
        words = len(chat_stub.pieces(chat_stub.ANSWER))
        expect(page.run("document.querySelector('.stats').textContent").startswith(f"reef-135m · {words} tokens · "), "the numbers of the answer")
        expect_same(page.run("document.getElementById('context').textContent"), f"context: {21 + words} of 4,096 tokens", "the context")
        page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        for selector, text in ((".code button", "def depth(years, rate=0.0001):\n    return years * rate"), ("article.assistant .foot button", chat_stub.ANSWER)):
            click(page, selector, "copy")
            page.until(f"document.querySelector('{selector}').textContent === 'copied'")
            expect_same(page.run("navigator.clipboard.readText()"), text, "what was copied")
        # A screen reader hears blocks, each once.
        expect_same(page.run("document.getElementById('said').children.length"), 5, "what is read out")
        expect_same(page.run("document.getElementById('said').firstChild.textContent"), "An atoll is a ring of coral around a lagoon. Two things make one:", "what is read out first")
        expect("copy" not in page.run("document.getElementById('said').textContent"), "buttons are not read out")

        # Stop: what has come stays, and the server is told.
        say(page, "Answer slowly")
        page.until("atollChat.running()?.node.text === 'An **atoll** is' && document.getElementById('hint').textContent.startsWith('Esc stops · 3 tokens') && document.getElementById('send').textContent === 'stop'")
        expect(page.run("[...document.querySelectorAll('.foot button')].filter((b) => b.textContent !== 'copy').every((b) => b.disabled)"), "nothing is changed while an answer is written")
        page.key("Escape")
        page.until(f"{IDLE} && document.body.innerText.includes('Stopped.')")
        expect(stub.cut.wait(60), "the server learns of the stop")
        # The same by the button, and an answer again beside it.
        click(page, "article:last-child .foot button", "again")
        page.until("atollChat.running()?.node.text === 'An **atoll** is'")
        click(page, "#send", "stop")
        page.until(IDLE)
        expect_same(page.run("document.querySelector('article:last-child .versions').innerText.replace(/\\s/g, '')"), "‹2/2›", "versions of the answer")
        stub.gate.set()
        click(page, "article:last-child .foot button", "again")
        page.until(f"{IDLE} && document.querySelectorAll('.markdown table').length === 2")
        click(page, "article:last-child .versions button", "‹")
        page.until("document.body.innerText.includes('Stopped.')")

        # Arrow up edits the last message; the earlier version stays, with what followed it.
        page.run("atollChat.composer.focus()")
        page.key("ArrowUp")
        page.until("document.activeElement.closest('.editor') && document.activeElement.value === 'Answer slowly'")
        page.key("Escape")
        page.until("!document.querySelector('.editor') && document.activeElement.id === 'compose'")
        page.key("ArrowUp")
        type_into(page, "document.activeElement", "Answer with reasoning")
        page.key("Enter")
        page.until(f"{IDLE} && document.querySelector('.thinking:not([hidden]) summary')?.textContent === 'thoughts, 6 words'")
        expect_same(page.run("[document.querySelector('.thinking:not([hidden])').open, document.querySelector('article:last-child .markdown').innerText]"), [False, "It is wide."], "folded thoughts, and the answer")
        click(page, "article:nth-child(3) .versions button", "‹")
        page.until("document.body.innerText.includes('Stopped.') && document.querySelector('article:last-child .versions').innerText.includes('2/3')")
        click(page, "article:nth-child(3) .versions button", "›")
        say(page, "And with think tags")
        page.until(f"{IDLE} && document.querySelector('article:last-child .markdown').innerText === 'It is deep.'")
        expect_same([m["content"] for m in stub.requests[-1]["messages"]], ["What is an atoll?", chat_stub.ANSWER, "Answer with reasoning", "It is wide.", "And with think tags"], "what was sent, without thoughts")
        say(page, "long, for once")
        page.until(f"{IDLE} && document.body.innerText.includes('Cut off')")
        expect_same(answers(page), 4, "answers that are shown")
        expect_quiet(page, stub)


def check_markup():
    """Texts of a model are no markup, and nothing is loaded for them."""
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        say(page, f"<img src=x onerror=window.evil=1> markup {chat_stub.MARKUP}")
        page.until(f"{IDLE} && document.querySelector('.markdown table')")
        expect(page.run("window.evil === undefined && !document.querySelector('body img, body script, iframe, svg, [onerror], [onclick], [onload], [style*=url]')"), "a text became markup")
        expect_same(page.run("[...document.querySelectorAll('.markdown a')].map((a) => a.getAttribute('href'))"), ["http://127.0.0.1:1/spy.png", 'https://example.org/"onclick="window.evil=1'], "what may be followed")
        expect(page.run("document.querySelector('#conversations').innerText.includes('<img src=x')"), "the title is a text, too")
        expect_quiet(page, stub)


def check_errors():
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        say(page, "Is this refused?")
        page.until(f"{IDLE} && document.querySelector('.error')?.innerText.startsWith('The server does not take this request: temperature 9 is too high')")
        click(page, ".error button", "retry")
        page.until(f"{IDLE} && document.querySelector('.error')")
        expect_same([len(stub.requests), answers(page), page.run("atollChat.conversation.nodes.length")], [2, 1, 2], "a retry takes the place of what failed")
        say(page, "broken off")
        page.until(f"{IDLE} && document.body.innerText.includes('The answer broke off: the connection ended')")
        expect_same(page.run("document.querySelector('article:last-child .markdown').innerText"), "An atoll is", "what had come")
        say(page, "error within")
        page.until(f"{IDLE} && document.body.innerText.includes('The answer broke off: the engine has ended')")
        stub.busy = 2
        say(page, "Are you busy?")
        page.until(f"{IDLE} && document.querySelector('article:last-child table')")
        expect_same(len(stub.requests), 7, "requests until it was not busy")
        # So long that no other try comes while it is looked at.
        stub.busy, stub.retry_after = 1000, "100"
        say(page, "And busy now?")
        page.until("document.body.innerText.includes('The server is busy. It is asked again in')")
        page.key("Escape")
        page.until(f"{IDLE} && document.body.innerText.includes('Stopped.')")
        stub.server.shutdown()
        stub.server.server_close()
        say(page, "Are you there?")
        page.until(f"{IDLE} && document.body.innerText.includes('The server is not reached')")


def check_key():
    with chat_stub.Stub(key="s3cret") as stub, browser.Page() as page:
        page.open(stub.url)
        page.until("document.querySelector('dialog[open] .error')?.innerText === 'The server asks for an API key: this server wants a key'")
        type_into(page, "document.querySelector('dialog[open] input')", "s3cret")
        page.key("Enter")
        page.until("!document.querySelector('dialog[open]') && atollChat.models.models.length === 2")
        expect_same(page.run("[sessionStorage.length, localStorage.getItem('atoll-chat-key')]"), [1, None], "where the key is kept")
        say(page, "Hello")
        page.until(f"{IDLE} && document.querySelector('.markdown table')")
        # Another key from now on: the message that was refused goes out with it.
        stub.key = "0ther"
        say(page, "Again")
        page.until("document.querySelector('dialog[open] .error')")
        type_into(page, "document.querySelector('dialog[open] input')", "0ther")
        page.run("document.getElementById('remember').click()")
        click(page, "dialog[open] button", "use this key")
        page.until(f"{IDLE} && document.querySelectorAll('.markdown table').length === 2 && !document.querySelector('article .error')")
        expect_same(page.run("localStorage.getItem('atoll-chat-key')"), "0ther", "a key that is remembered")
        click(page, "#key", "API key")
        click(page, "dialog[open] button", "forget it")
        page.until("sessionStorage.length === 0 && localStorage.getItem('atoll-chat-key') === null")


def check_settings():
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        click(page, "#settings", "settings")
        field = lambda name: f"document.getElementById('field-{name}')"
        type_into(page, field("temperature"), "9")
        page.until(f"{field('temperature')}.getAttribute('aria-invalid') === 'true' && document.getElementById('field-temperature-said').innerText === 'temperature is from 0 to 2'")
        for name, text in (("temperature", "0,5"), ("top-k", "40"), ("seed", "7"), ("stop-strings", "END\n\\n\\n"), ("system-prompt", "Be brief.")):
            type_into(page, field(name), text)
        click(page, "dialog[open] button", "use for new conversations")
        click(page, "dialog[open] button", "done")
        page.until("!document.querySelector('dialog[open]')")
        say(page, "Hello")
        page.until(f"{IDLE} && document.querySelector('.markdown table')")
        asked = stub.requests[-1]
        expect_same([asked["messages"][0], asked["temperature"], asked["top_k"], asked["seed"], asked["stop"]], [{"role": "system", "content": "Be brief."}, .5, 40, 7, ["END", "\n\n"]], "what is asked")
        expect("top_p" not in asked and "max_tokens" not in asked, "what is empty is not sent")
        click(page, "#new", "new chat")
        expect_same(page.run("[atollChat.conversation.system, atollChat.conversation.settings.seed]"), ["Be brief.", 7], "defaults of a new conversation")
        expect_quiet(page, stub)


def check_text():
    """A base model goes on with a text."""
    with chat_stub.Stub() as stub, browser.Page() as page:
        opened(page, stub.url)
        page.run("(() => { const s = document.getElementById('model'); s.value = 'reef-base'; s.dispatchEvent(new Event('change')); })()")
        page.until("document.getElementById('mode').value === 'text' && document.getElementById('send').textContent === 'continue'")
        say(page, "Once the **tide** had gone out,")
        page.until(f"{IDLE} && document.querySelectorAll('article').length === 2")
        click(page, "#send", "continue")
        page.until(f"{IDLE} && document.querySelectorAll('article').length === 3")
        expect_same([(r["path"], r["model"], r["prompt"]) for r in stub.requests], [("/v1/completions", "reef-base", "Once the **tide** had gone out,"),
                    ("/v1/completions", "reef-base", "Once the **tide** had gone out, and the sea came back.")], "what was asked")
        expect_same(page.run("[...document.querySelectorAll('.plain')].map((node) => node.textContent).filter(Boolean).join('')"), "Once the **tide** had gone out," + 2 * " and the sea came back.", "the text")
        expect(page.run("document.getElementById('mode').disabled && !document.querySelector('.markdown strong')"), "a text is no chat")
        expect_quiet(page, stub)


def pictures(out):
    os.makedirs(out, exist_ok=True)
    for name, width, height, dark in (("chat", 1180, 760, False), ("chat-dark", 1180, 760, True), ("chat-phone", 390, 760, False)):
        with chat_stub.Stub() as stub, browser.Page(width, height, dark=dark) as page:
            stub.answers = []
            stub.between_s = .02  # tokens a second as a small model has them
            opened(page, stub.url)
            for text in ("A poem about the tide", "Translate this to Tamil"):
                say(page, text)
                page.until(f"{IDLE} && document.querySelector('.markdown table')")
                page.run("atollChat.begin()")
            say(page, "What is an atoll? Answer with reasoning." if dark else "What is an atoll?")
            page.until(f"{IDLE} && document.querySelector('article:last-child .stats')?.textContent")
            page.run("document.activeElement.blur(), atollChat.messages.root.scrollTop = 0")
            page.picture(os.path.join(out, f"{name}.png"))


def main():
    if browser.find() is None:
        print("skipped: there is no Chromium; apt-get install chromium-headless-shell")
        sys.exit(77)
    if len(sys.argv) > 1:
        pictures(sys.argv[1])
        return
    for check in (check_functions, check_answers, check_markup, check_errors, check_key, check_settings, check_text, *chat_keeping.CHECKS):
        check()
    print("the page holds")


if __name__ == "__main__":
    main()
