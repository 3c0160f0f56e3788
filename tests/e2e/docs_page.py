"""The directory in which the blocks of one page run, and how they run there."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from docs_names import ROOT

HANGS_S = 300  # only a block that hangs takes so long
WRAPPER = """#!/bin/bash
# atoll with what `with` in the page's file adds to this command.
arguments=("$@")
while read -r -a words; do
  at=1 # words without -- say which commands are meant
  for word in "${words[@]}"; do
    if [[ $word != --* ]]; then
      [[ $word == "${!at-}" ]] || break
      at=$((at + 1))
      continue
    fi
    given=0
    for argument in "${arguments[@]}"; do
      [[ ${argument%%=*} != "${word%%=*}" ]] || given=1
    done
    ((given)) || arguments+=("${word//%/${PMIX_NAMESPACE:-$$}}")
  done
done < <(tac "$(dirname "$0")/with") # the newest first: it counts
exec "$ATOLL" "${arguments[@]}"
"""
# What `before` may call: things that the pages' reader has.
GIVEN = """
tiny='--train.steps=6 --train.context=64 --optim.warmup_steps=2 --eval.max_tokens=500
  --model.hidden_size=32 --model.num_hidden_layers=1 --model.num_attention_heads=2
  --model.num_key_value_heads=2 --model.max_position_embeddings=1024 --data.vocab_size=500'
kjv() { # the text of recipes/kjv-*.toml
  mkdir -p runs/kjv-demo-data
  cp "$TEXT" runs/kjv-demo-data/kjv.txt
}
a_run() { # <directory>: a run of kjv-demo.toml
  kjv
  "$ATOLL" train recipes/kjv-demo.toml $tiny --run.dir="$1"
}
islands_run() { # <directory>: a run of two islands
  kjv
  "$ATOLL" train recipes/kjv-islands.toml --islands 2 $tiny --outer.inner_steps=2 --run.dir="$1"
}
a_chat_model() { # <directory>: a model with a chat template
  a_run runs/for-chat
  "$ATOLL" export runs/for-chat --out "$1"
  echo '{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}' >"$1/chat_template.jinja"
}
"""


class Page:
    """The directory of one page, in which its blocks run."""

    def __init__(self, atoll, text, top):
        self.home = top
        programs = top / "build/release/bin"
        programs.mkdir(parents=True)
        (top / "recipes").symlink_to(ROOT / "recipes")
        for name in ("dev", "README.md"):  # copies, which a block may write to
            shutil.copy(ROOT / name, top / name)
        self.added = programs / "with"
        self.added.write_text("")
        self.instead = {}
        self.meanwhile = []
        wrapper = programs / "atoll"
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        self.environment = os.environ | {
            "ATOLL": atoll,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TEXT": str(text),
            "OUTPUT": str(top / "build/output"),
            "NO_COLOR": "1",
            # mpirun asks for these where a person would say --allow-run-as-root --oversubscribe.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }

    def start(self, script, output):
        """A process of its own session, so that what it starts can end with it."""
        for word, instead in self.instead.items():
            script = script.replace(word, instead)
        with open(output, "wb") as file:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def shell(self, script, until=None):
        """Exit code and output of a script; what it started ends with it."""
        output = self.environment["OUTPUT"]
        process = self.start(script, output)
        if until:
            soon(lambda: process.poll() is not None or re.search(until, read(output)))
            kill(process, signal.SIGTERM)
        try:
            code = process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            code = f"none after {HANGS_S} s"
        kill(process, signal.SIGKILL)
        process.wait()
        return code, read(output)

    def at_once(self, script, regex):
        """The first exit code that is not 0 of lines that run beside each other, and all output."""
        outputs = [f"{self.environment['OUTPUT']}-{at}" for at, _ in enumerate(script.splitlines())]
        processes = []
        for line, output in zip(script.splitlines(), outputs):
            processes.append(self.start(line, output))
            soon(lambda: processes[0].poll() is not None or re.search(regex, read(outputs[0])))
        soon(lambda: all(p.poll() == 0 for p in processes) or any(p.poll() for p in processes))
        codes = [process.poll() for process in processes]
        for process in processes:
            kill(process, signal.SIGKILL)
            process.wait()
        output = "".join(read(output) for output in outputs)
        pathlib.Path(self.environment["OUTPUT"]).write_text(output, encoding="utf-8")
        return next((code for code in codes if code), 0 if None not in codes else "none"), output

    def take_sticky(self, block):
        with self.added.open("a") as file:
            for text in block.texts("with"):
                file.writelines(line.strip() + "\n" for line in text.splitlines())
        for text in block.texts("here"):
            for line in text.splitlines():
                words, says, instead = line.strip().partition(" is ")
                if not says:
                    sys.exit(f"{block.place}: `here: {line}`: say `WORDS is WORDS`, a line each")
                self.instead[words] = free_port() if instead == "port" else instead

    def run(self, block):
        """What is wrong with a block, "" if nothing."""
        self.take_sticky(block)
        for script in block.texts("before"):
            code, output = self.shell(GIVEN + script)
            if code != 0:
                return f"`{script}` before it: exit code {code}\n{output}"
        if block.texts("meanwhile"):
            output = self.home / f"build/meanwhile-{len(self.meanwhile)}"
            process = self.start(block.script, output)
            self.meanwhile.append((block, process, output))
            regex = block.texts("meanwhile")[0]
            soon(lambda: process.poll() is not None or re.search(regex, read(output)))
            return ""  # whether it ended too early, end() says
        until = (block.texts("until") or [None])[0]
        wanted = int((block.texts("exit") or [128 + signal.SIGTERM if until else 0])[0])
        if block.texts("at once"):
            code, output = self.at_once(block.parts()[0], block.texts("at once")[0])
        else:
            code, output = self.shell(block.parts()[0], until)
        if code not in (wanted, 128 - wanted):  # bash says 128 + signal, or dies of it itself
            return f"exit code {code}, not {wanted}\n{output}"
        for regex in block.texts("prints") + block.texts("until"):
            if not re.search(regex, output, re.MULTILINE):
                return f"it prints nothing like `{regex}`, but\n{output}"
        kept = shutil.copy(self.environment["OUTPUT"], self.home / "build/printed")
        for script in block.texts("after"):
            code, output = self.shell(f"OUTPUT={kept}\n{script}")
            if code != 0:
                return f"`{script}` after it: exit code {code}\n{output}"
        return ""

    def end(self, failed):
        """What is wrong with the blocks that ran meanwhile, "" if nothing."""
        wrong = ""
        for block, process, output in self.meanwhile:
            if not failed:
                soon(lambda: process.poll() is not None)
            code = process.poll()
            kill(process, signal.SIGKILL)
            process.wait()
            if code != 0 and not failed:
                wrong = wrong or f"{block.place}: exit code {code}, not 0\n{read(output)}"
        return wrong


def soon(happens):
    """Waits until something happens; only what hangs lets it give up."""
    deadline = time.monotonic() + HANGS_S
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.05)


def kill(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])
