"""What pages may name: files, tests, settings and commands with their options that there are."""

import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where a page's file names begin.
PLACES = ("", "src/atoll/", "docs/")
# Settings of others, and files: a word, a dot, a word.
NO_KEY = re.compile(
    r"\.(json|jsonl|md|h|cpp|py|toml|txt|safetensors|model|pem|db|bin|lock|sh|supp|index|gguf|jinja|io|org)$"
)


class Names:
    """What a block that is not run may say: commands, options and settings that atoll has."""

    def __init__(self, atoll):
        self.atoll = atoll
        self.helps = {}
        self.dev = subprocess.run([str(ROOT / "dev"), "help"], capture_output=True, text=True).stdout
        self.keys = set(re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)`", self.said("config-reference"), re.MULTILINE))
        self.commands = set(re.findall(r"^  ([a-z-]+) ", self.said("help"), re.MULTILINE))

        self.files = [
            path.relative_to(ROOT).as_posix()
            for folder in ("src", "tests", "tools", "bench", "docs", "cmake", "recipes")
            for path in (ROOT / folder).rglob("*.*")
        ]
        self.code = "".join(
            (ROOT / file).read_text(encoding="utf-8") for file in self.files if file.endswith((".cpp", ".h"))
        )

    def stale(self, markdown):
        """`LINE: what is wrong` for each name in inline code that is nowhere."""
        found = []
        plain = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), markdown, flags=re.M | re.S)
        for code in re.finditer(r"`([^`\n]+)`", plain):
            problem = self.unknown(code[1])
            if problem:
                found.append(f"{plain.count(chr(10), 0, code.start()) + 1}: {problem}")
        return found

    def unknown(self, word):
        if re.fullmatch(r"[\w./-]+\.(cpp|h|py|md|toml|supp)", word):
            if not any((ROOT / place / word).exists() for place in PLACES):
                if not any(file.endswith("/" + word) for file in self.files):
                    return f"there is no file {word}"
        elif re.fullmatch(r"[A-Z]\w+\.[A-Z]\w+", word):
            if re.search(rf"TEST(_[FP])?\({word.replace('.', ', *')}", self.code) is None:
                if not all(part in self.code for part in word.split(".")):
                    return f"there is no test {word}"
        elif re.fullmatch(r"[a-z]+\.[a-z_0-9]+", word) and not NO_KEY.search(word):
            section = word.split(".")[0] + "."
            if any(key.startswith(section) for key in self.keys) and word not in self.keys:
                return f"there is no setting {word}"
        return ""

    def said(self, *arguments):
        if arguments not in self.helps:
            done = subprocess.run([self.atoll, *arguments], capture_output=True, text=True)
            self.helps[arguments] = done.stdout
        return self.helps[arguments]

    def wrong(self, script):
        for line in script.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            for word in words:
                if re.fullmatch(r"(bench|tools|tests)/[\w./]+", word) and not (ROOT / word).exists():
                    return f"there is no {word}"
            if words[:1] == ["./dev"] and f"\n  {words[1]} " not in self.dev:
                return f"./dev has no {words[1]}"
            for at, word in enumerate(words):
                if word in ("atoll", "$atoll") and at + 1 < len(words):
                    problem = self.wrong_in(words[at + 1 :])
                    if problem:
                        return f"{problem} in `{line}`"
        return ""

    def wrong_in(self, words):
        command = words[0]
        if command not in self.commands:
            return f"there is no command {command}"
        subcommand = words[1:2] if command in ("bench", "certs", "runs", "tune") else []
        known = self.said(command, "--help") + self.said(command, *subcommand, "--help")
        for word in words[1:]:
            option = word.split("=")[0]
            if not option.startswith("--"):
                continue
            if option[2:] not in self.keys and not re.search(rf"(?<![\w-]){option}(?![\w-])", known):
                return f"atoll {command} has no {option}"
        return ""
