#!/usr/bin/env python3
"""Does a test fail for every barrier, wait, shuffle and bound that a kernel or a stream forgets?

    tools/mutate_kernels.py [BUILD] [NAME...]

Leaves out, one at a time, of src/atoll/ops/*/*.cuh and numbers.h: each sync_block() and sync_warp(),
each wait for asynchronous copies, each shuffle and vote (a lane then keeps its own value), and each check
that keeps a thread within its rows and columns. Compiles the kernels with that, links ops_test with them,
and runs the tests of the GPU's ops on the fake GPU, those beside the kernel first. BUILD (build/release) is
a build folder whose ops_test is up to date; NAME is a family's, as "norm", or has a file and a line, as
"norm/kernels:43". Exit code 1 when nothing fails for a mutation.

"piece_moves" and "device_batches" are no kernels: of these each event that is recorded or waited for, and
each stream that is waited for, is left out, and the tests beside them run.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPS = ROOT / "src/atoll/ops"
LIMIT_S = 300  # for one run of the tests: threads that wait for ever are told by the shim


# What rows and columns end with, as kernels name it.
END = (r"(?:[a-z_]+\.)?(?:length|end|head_dim|last|rows|size|num_rows|width|columns|vocab|count|num_experts|groups|k)"
       r"(?![\w.(])")
BELOW = re.compile(r"\w[\w.\[\]]*(?:\(\))?(?: [+*] \w[\w.\[\]]*)* < " + END)
NOT_BELOW = re.compile(r"\w[\w.\[\]]*(?:\(\))?(?: [+*] \w[\w.\[\]]*)* >= " + END)
LOOP = re.compile(r"(for \(.*[a-z] )<( " + END + r";)")
MEETING = re.compile(r"(?:if (?:constexpr )?\(.*\) )?(?:sync_(?:block|warp)|wait_copies<\d+>)\(\);(?:  // .*)?")
LEAVES = re.compile(r"if \([^&|]* >= [^&|]*\) (?:return|continue|break);")
EXCHANGE = re.compile(r"\b(shuffle|shuffle_xor|ballot|any_lane)\(")


def arguments_of(line, begin):
    """The arguments of a call whose parenthesis opens before `begin`, and where it ends."""
    arguments, depth, start = [], 0, begin
    for i in range(begin, len(line)):
        if line[i] in "([{":
            depth += 1
        elif line[i] in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and line[i] == ","):
            arguments.append(line[start:i].strip())
            start = i + 1
        if depth < 0:
            return arguments, i + 1
    sys.exit(f"a call that does not end in its line: {line.strip()}")


def without_exchanges(line):
    """The line with each shuffle or vote of a lane alone."""
    for call in EXCHANGE.finditer(line):
        arguments, end = arguments_of(line, call.end())
        own = f"({arguments[0]})"
        if call.group(1) == "ballot":
            own = f"({arguments[0]} ? 1U << lane() : 0U)"
        yield line[:call.start()] + own + line[end:]


def variants_of(line):
    """What a line may become when something is left out."""
    code = line.strip()
    if MEETING.fullmatch(code) or LEAVES.fullmatch(code):
        yield "\n"
    if code.startswith("//") or "ATOLL_DEVICE" in line:
        return
    yield from without_exchanges(line)
    if re.search(r"\bfor \(", line):
        # A loop over `begin` cuts what the body checks again.
        if "int64_t begin" not in line and LOOP.search(line):
            yield LOOP.sub(r"\1<=\2", line)
        return
    if re.search(r"\bif \(|is_there =|\? | && ", line):
        for bound in BELOW.finditer(line):
            yield line[:bound.start()] + "true" + line[bound.end():]
        if not LEAVES.fullmatch(code):
            for bound in NOT_BELOW.finditer(line):
                yield line[:bound.start()] + "false" + line[bound.end():]


def mutations(text):
    """(line number, what is changed, text with that)."""
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        for new in variants_of(line):
            yield i + 1, line.strip(), "".join(lines[:i] + [new] + lines[i + 1:])


# What moves between a GPU and the host, and the program that tests it.
MOVES = {ROOT / "src/atoll/optim/piece_moves.cpp": ("optim_test", "PieceMoves*"),
         ROOT / "src/atoll/parallel/runner/device_batches.cpp": ("parallel_test", "DeviceBatches*")}
EVENT = re.compile(r"[\w.\[\]]+->(?:wait|record|synchronize)\((?:[^()]|\(\))*\);")


def moves_without_events(text):
    """As mutations()."""
    for event in EVENT.finditer(text):
        yield text.count("\n", 0, event.start()) + 1, event.group(), text[:event.start()] + ";" + text[event.end():]


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]).resolve() == source:
            words = shlex.split(entry["command"])
            return words[next(i for i, word in enumerate(words) if word.endswith("++")):]
    sys.exit(f"{build} does not compile {source.relative_to(ROOT)}")


def link_command(build, target, objects, program):
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True,
                              capture_output=True, text=True).stdout.splitlines()
    link = next(c for c in reversed(commands) if f" -o src/atoll/{target} " in c)
    words = shlex.split(link.split("&&")[1] if link.startswith(":") else link)
    at = words.index("-o")
    return words[:at] + [*objects, "-o", program] + words[at + 2:]


def includes(path, header):
    """Whether a file includes a header of a kernel, by itself or by way of others."""
    found = [OPS / name for name in re.findall(r'#include "atoll/ops/([^"]+)"', path.read_text())]
    return header in found or any(includes(name, header) for name in found)


def compiled(build, scratch, source, text_of=None):
    """The object of a source, with the headers in `scratch` before all others, or with another text."""
    words = compile_command(build, source)
    result = scratch / f"{source.parent.name}_{source.stem}.o"
    words[words.index("-o") + 1] = str(result)
    words[words.index("-c") + 1] = str(text_of or source)
    words[1:1] = [f"-I{scratch}", "-w"]
    run = subprocess.run(words, cwd=build, capture_output=True, text=True)
    if run.returncode != 0:
        # Then nothing was shown, whether the mutation or the source is to blame.
        sys.exit(f"{source.name} does not compile with a mutation:\n{run.stderr[:2000]}")
    return result


def run_moves(build, scratch, source, text):
    """As run_mutant, of a source."""
    target, tests = MOVES[source]
    mutant = scratch / source.name
    mutant.write_text(text)
    program = scratch / target
    objects = [compiled(build, scratch, source, mutant)]
    subprocess.run(link_command(build, target, objects, program), cwd=build, check=True)
    return failure_of(program, tests)


def run_mutant(build, scratch, header, text):
    """The first test that fails with this text of the header; None when all pass."""
    overlay = scratch / "atoll/ops" / header.parent.name
    shutil.rmtree(scratch / "atoll", ignore_errors=True)
    overlay.mkdir(parents=True)
    (overlay / header.name).write_text(text)
    sources = [source for source in sorted(OPS.glob("*/cuda*.cpp"))
               if not source.name.endswith("_test.cpp") and includes(source, header)]
    if not sources:
        sys.exit(f"no source includes {header.name}")
    objects = [compiled(build, scratch, source) for source in sources]
    program = scratch / "ops_test"
    subprocess.run(link_command(build, "ops_test", objects, program), cwd=build, check=True)
    near = ":".join(sorted(tests_beside([header, *sources])))
    filters = [near, f"Cuda*-{near}"] if near else ["Cuda*"]
    return next(filter(None, (failure_of(program, tests) for tests in filters)), None)


def tests_beside(files):
    """What --gtest_filter takes for the tests of a GPU in the families of these files."""
    for tests in sorted({test for file in files for test in file.parent.glob("cuda*_test.cpp")}):
        for suite in re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", tests.read_text(), re.M):
            yield from (f"{suite}.*", f"*/{suite}.*", f"{suite}/*")


def failure_of(program, tests):
    """The first of these tests that fails; None when all pass."""
    try:
        run = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast"],
                             capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return "a test that ends"
    failed = re.search(r"\[  FAILED  \] (\S+)", run.stdout)
    if run.returncode == 0:
        return None
    return failed.group(1) if failed else f"exit code {run.returncode}"


def main():
    arguments = sys.argv[1:]
    build = (ROOT / (arguments[0] if arguments else "build/release")).resolve()
    names = arguments[1:]
    scratch = build / "kernel_mutations"
    scratch.mkdir(exist_ok=True)
    survivors = count = 0
    for file in [*sorted(OPS.glob("*/*.cuh")), OPS / "cuda/numbers.h", *MOVES]:
        mutants, run = (moves_without_events, run_moves) if file in MOVES else (mutations, run_mutant)
        for line, what, text in mutants(file.read_text()):
            name = f"{file.parent.name}/{file.stem}"
            if names and not {file.parent.name, name, f"{name}:{line}"} & set(names):
                continue
            count += 1
            failed = run(build, scratch, file, text)
            survivors += failed is None
            print(f"{name}:{line}: \"{what}\": "
                  f"{'NOTHING FAILS' if failed is None else failed}", flush=True)
    print(f"{count} mutations, {survivors} that nothing notices")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
