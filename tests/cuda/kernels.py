#!/usr/bin/env python3
"""What nvcc makes of the kernels: warnings, registers, stack and spills, for each architecture.

    kernels.py [--write]

Compiles src/atoll/ops/nvcc/*.cu as the preset `cuda` does, and compares with kernels.txt beside
this script: a line a kernel, with its registers on sm_80, sm_90 and sm_100. No kernel may have a
stack or spill. Where ptxas is another version than that of kernels.txt, registers may be up to 8
more. --write writes the file anew. Needs nvcc, and no GPU; exits with 77 where there is no nvcc.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = pathlib.Path(__file__).with_name("kernels.txt")
ARCHITECTURES = ["80", "90", "100"]
SLACK = 8  # registers that another ptxas may take
FLAGS = ["-std=c++20", "--expt-relaxed-constexpr", "-fmad=false", "-O3", "-Xcompiler=-Wall,-Wextra",
         "-Werror=all-warnings", "-Xptxas=-v"]


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def compile_one(nvcc, source, folder):
    """What ptxas says of one file."""
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    out = pathlib.Path(folder) / (source.stem + ".o")
    run = subprocess.run([nvcc, *FLAGS, *codes, "-I", ROOT / "src", "-c", source, "-o", out],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{source.relative_to(ROOT)} does not compile:\n{run.stdout}{run.stderr}")
    return run.stdout + run.stderr


def short(name):
    """NormForward<Bf16, 8, false> of run_kernel's demangled name."""
    inside = re.search(r"run_kernel<(.*)>\(", name).group(1).strip()
    return re.sub(r"\(\s*[\w:]+\)", "", inside.replace("atl::ops::cuda::", "").replace("atl::", ""))


def parse(text):
    """{kernel: {architecture: registers}}, and what has a stack or spills."""
    kernels, faults, name, arch = {}, [], None, None
    for line in text.splitlines():
        if entry := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)'", line):
            name, arch = entry.groups()
        elif frame := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line):
            if frame.groups() != ("0", "0") and name:
                faults.append((name, f"sm_{arch}: {line.strip()}"))
        elif used := re.search(r"Used (\d+) registers", line):
            kernels.setdefault(name, {})[arch] = int(used.group(1))
    return kernels, faults


def demangle(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                         check=True)
    return dict(zip(names, map(short, run.stdout.splitlines())))


def measure(nvcc):
    sources = sorted((ROOT / "src/atoll/ops/nvcc").glob("*.cu"))
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            texts = list(pool.map(lambda s: compile_one(nvcc, s, folder), sources))
    kernels, faults = parse("\n".join(texts))
    names = demangle(list(kernels))
    return {names[k]: v for k, v in kernels.items()}, [f"{names[k]}: {v}" for k, v in faults]


def ptxas_version(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", text).group(1)


def read_golden():
    lines = GOLDEN.read_text().splitlines()
    version = re.search(r"ptxas ([\d.]+)", lines[0]).group(1)
    kernels = {}
    for line in lines[1:]:
        *numbers, name = line.split(maxsplit=len(ARCHITECTURES))
        kernels[name] = dict(zip(ARCHITECTURES, map(int, numbers)))
    return version, kernels


def main():
    nvcc = find_nvcc()
    if nvcc is None:
        print("there is no nvcc here: nothing was checked")
        return 77
    kernels, problems = measure(nvcc)
    version = ptxas_version(nvcc)
    if "--write" in sys.argv[1:]:
        lines = [f"# registers on sm_{', sm_'.join(ARCHITECTURES)} by ptxas {version}"]
        lines += [" ".join(f"{found[a]:3}" for a in ARCHITECTURES) + "  " + name
                  for name, found in sorted(kernels.items())]
        GOLDEN.write_text("\n".join(lines) + "\n")
    pinned_version, pinned = read_golden()
    slack = 0 if version == pinned_version else SLACK
    for name in sorted(kernels.keys() | pinned.keys()):
        if name not in pinned or name not in kernels:
            problems.append(f"{name}: {'not in kernels.txt' if name in kernels else 'is gone'}")
            continue
        for arch, most in pinned[name].items():
            if kernels[name][arch] > most + slack:
                problems.append(f"{name}: {kernels[name][arch]} registers on sm_{arch}, "
                                f"{most} pinned")
    for problem in problems:
        print(problem)
    print(f"{len(kernels)} kernels for {len(ARCHITECTURES)} architectures, "
          f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
