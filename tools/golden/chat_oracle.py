"""Writes src/atoll/text/testdata/chat_templates.json: templates, variables, and what jinja2 makes
of them in the environment that transformers sets up for chat templates.

Run from the root of the checkout, with any Python that has jinja2 >= 3.1.6:

    python3 tools/golden/chat_oracle.py

Every case has a template and variables (a JSON object), and either `output` (with `spans`, the bytes
inside {% generation %}, where there are any) or `error` (the exception's class) and `line`, the line
of the template that failed.
"""

import json
import sys
import time
import traceback

from chat_constructs import X, constructs
from chat_families import FAMILIES
from chat_manners import TEMPLATES
from jinja2 import nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUTPUT = "src/atoll/text/testdata/chat_templates.json"
NOW = 1721995200  # 26 July 2024, 12:00 UTC: the same day in nearly every time zone
BEGIN, END = "\ue000", "\ue001"


class Generation(Extension):
    """{% generation %}, whose output is put between two private characters."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return BEGIN + caller() + END


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda how: time.strftime(how, time.localtime(NOW))
    return env


def split_spans(text):
    """The text without marks, and the bytes between them."""
    plain, spans, start = b"", [], None
    for character in text:
        if character == BEGIN:
            start = len(plain)
        elif character == END:
            if len(plain) > start:
                spans.append([start, len(plain)])
        else:
            plain += character.encode()
    return plain.decode(), spans


def run(template, variables):
    case = {"template": template, "variables": variables}
    try:
        text, spans = split_spans(environment().from_string(template).render(**variables))
        case["output"] = text
        if spans:
            case["spans"] = spans
    except TemplateSyntaxError as error:
        case["error"], case["line"] = type(error).__name__, error.lineno
    except SyntaxError as error:  # of the Python that jinja2 makes: no line of the template
        case["error"] = type(error).__name__
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<template>"]
        case["error"], case["line"] = type(error).__name__, frames[-1].lineno
    return case


USER, ASSISTANT = {"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": " 4, I think. "}
SYSTEM = {"role": "system", "content": "You count. \u00dcber\u2026"}
MORE = {"role": "user", "content": "<b>Sure?</b> \U0001f914\n"}
CALL = {"role": "assistant", "tool_calls": [{"id": "abc123def", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": [1.5, None], "c": "\"q\" <x>"}}}]}
RESULT = {"role": "tool", "name": "add", "content": "4.5"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm, two and two\n</think>\n\nFour."}
REASONED = {"role": "assistant", "content": "Four.", "reasoning_content": "easy"}
PARTED = {"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": "!"}]}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": " adds numbers & \"more\" ", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "first"}, "b": {"type": "array", "items": {"type": ["number", "string"]}}, "c": {"type": "object"}}, "required": ["a"]}, "return": {"type": "number"}}},
    {"type": "function", "function": {"name": "now", "description": "tells the time", "parameters": {"type": "object", "properties": {}, "required": []}}},
]
CONVERSATIONS = [
    [USER], [SYSTEM, USER], [USER, ASSISTANT], [SYSTEM, USER, ASSISTANT, MORE], [USER, THOUGHT, MORE],
    [USER, CALL, RESULT, REASONED, MORE, THOUGHT], [USER, USER], [PARTED],
]
# Two of thinking, one with tools, one with parts.
MORE_CONVERSATIONS = [
    [SYSTEM, USER, THOUGHT, MORE, REASONED], [USER, {**CALL, "content": ""}, RESULT, {**THOUGHT, "content": "Four."}, MORE], [SYSTEM, USER, ASSISTANT, MORE], [PARTED],
]


def families():
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for name, template in TEMPLATES.items():
        for index, messages in enumerate(CONVERSATIONS):
            prompt = messages[-1]["role"] != "assistant"
            with_tools = name in ("headers_tools", "inst_tools", "chatml_tools", "types") and index in (1, 3, 5)
            variables = {**tokens, "tools": TOOLS if with_tools else None, "documents": None, "messages": messages, "add_generation_prompt": prompt}
            if index == 3:
                variables["tools_in_user"] = False
                variables["enable_thinking"] = False
                variables["documents"] = [{"title": "b", "text": "two\nlines"}, {"title": "A", "text": " one "}]
            yield name, template, variables
    for name, template in FAMILIES.items():
        for index, messages in enumerate(MORE_CONVERSATIONS):
            prompt = messages[-1]["role"] != "assistant"
            variables = {**tokens, "tools": TOOLS if index == 1 else None, "documents": None, "messages": messages, "add_generation_prompt": prompt}
            if index == 2:
                variables["enable_thinking"] = False
                variables["documents"] = [{"title": "A", "text": " one "}]
            yield name, template, variables


def main():
    templates, cases = {}, []
    for template, variables in constructs():
        case = run(template, variables)
        if variables is X:
            case["variables"] = "X"
        cases.append(case)
    for name, template, variables in families():
        case = run(template, variables)
        templates[name] = template
        case["template"] = {"name": name}
        cases.append(case)
    assert len(cases) >= 150, len(cases)
    fixture = {"now": NOW, "X": X, "templates": templates, "cases": cases}
    text = json.dumps(fixture, ensure_ascii=False, indent=1) + "\n"
    assert len(text.encode()) < 500_000, len(text.encode())
    with open(OUTPUT, "w", encoding="utf-8") as file:
        file.write(text)
    failed = sum("error" in case for case in cases)
    print(f"{len(cases)} cases, {failed} of them errors, {len(text.encode())} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
