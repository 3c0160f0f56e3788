#!/usr/bin/env python3
"""What nvcc makes of the kernels: warnings, registers, stack, spills, occupancy, and what is in PTX.

    kernels.py [--write] [--objects FOLDER]

Compiles the kernels of src/atoll/ops as the preset `cuda` does, and compares with kernels.txt beside
this script: a line a kernel, with its registers on sm_80, sm_90 and sm_100, and how many of its blocks
a multiprocessor of each holds (occupancy.cu). No kernel may have a stack or spill. In PTX, none adds
floats atomically; instructions that a GPU may round as it likes and products of tensor cores are in
TENSOR_CORES alone, doubles in KERNELS_OF_DOUBLES alone; and kernels whose last argument is a pack of 16
bytes read as many at once. Where ptxas is another version than that of kernels.txt, registers may be up
to 8 more and blocks one fewer. --write writes the file anew; --objects leaves what
was compiled in a folder, for sass.py. Needs nvcc, and no GPU; exits with 77
where there is no nvcc.
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
# Sums whose contract is double: gradient norms, Muon's norm of a matrix, what routers report, mean
# magnitudes of signs, and products of PowerSGD.
KERNELS_OF_DOUBLES = {"SquarePartials", "MuonFactor", "AddRouterSums", "EncodeSignsKernel",
                      "ProjectRows", "OrthogonaliseKernel"}
TENSOR_CORES = {"AttentionMmaForward", "AttentionMmaQueries", "AttentionMmaKeys", "GroupedMma",
                "MixedMma"}
WRITE_ALONE = {"ClearForeignRows"}  # packs that are written, of which nothing is read
FLAGS = ["-std=c++20", "--expt-relaxed-constexpr", "-fmad=false", "-O3", "-Xcompiler=-Wall,-Wextra",
         "-Werror=all-warnings", "-Xptxas=-v"]


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def made_sources(folder):
    """The folder of what CMake writes for nvcc: a .cu file for each list of kernels, and all_kernels.h."""
    made = pathlib.Path(folder) / "made"
    subprocess.run(["cmake", f"-DSOURCES={ROOT / 'src'}", f"-DOUT={made}", "-P",
                    ROOT / "cmake/kernels.cmake"], capture_output=True, check=True)
    return made / "atoll/ops/nvcc"


def compile_one(nvcc, source, folder):
    """What ptxas says of one file."""
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    out = pathlib.Path(folder) / (source.stem + ".o")
    run = subprocess.run([nvcc, *FLAGS, *codes, "-I", ROOT / "src", "-c", source, "-o", out],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{source.relative_to(ROOT)} does not compile:\n{run.stdout}{run.stderr}")
    ptx = out.with_suffix(".ptx")
    subprocess.run([nvcc, *FLAGS, "-arch=compute_80", "-I", ROOT / "src", "-ptx", source, "-o", ptx],
                   capture_output=True, check=True)
    return run.stdout + run.stderr, ptx.read_text()


def is_of_packs(name):
    """Whether a kernel's name says that it moves 16 bytes at once."""
    return re.fullmatch(r"\w+<(?:.*\b)?(Bf16|float|unsigned int), ([48])(?:, \w+)*>", name)


def check_ptx(text):
    """What a kernel has in PTX that it must not have, or lacks."""
    for entry in re.finditer(r"\.entry (\w+)\(.*?\n\{\n(.*?)\n\}\n", text, re.S):
        name, body = short(demangle([entry.group(1)], shorten=False)[entry.group(1)]), entry.group(2)
        kind = name.split("<")[0]
        if re.search(r"\b(atom|red)\.[\w.]*\.(f16|bf16|f32|f64)", body):
            yield f"{name}: adds floats atomically"
        if ".approx" in body and kind not in TENSOR_CORES:
            yield f"{name}: has {re.search(r'[a-z0-9.]*[.]approx[.a-z0-9]*', body).group()}"
        if ("mma.sync" in body) != (kind in TENSOR_CORES):
            yield f"{name}: {'has' if 'mma.sync' in body else 'lacks'} products of tensor cores"
        if re.search(r"\b(add|mul|fma|div|sqrt)\.[\w.]*f64", body) and kind not in KERNELS_OF_DOUBLES:
            yield f"{name}: computes in double"
        moves = "st" if kind in WRITE_ALONE else "ld|cp"
        wide = re.search(rf"\b({moves})\.[\w.]*(v4\.|async\.cg)|ld\.[\w.]*v2\.[bu]64", body)
        if is_of_packs(name) and not wide:
            yield f"{name}: reads no 16 bytes at once"


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


def demangle(names, shorten=True):
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                         check=True)
    return dict(zip(names, (short(n) if shorten else n for n in run.stdout.splitlines())))


def operands_of(name):
    """atl::ops::cuda::NormForward<...> of run_kernel's demangled name."""
    return re.search(r"run_kernel<(.*)>\(", name).group(1).strip()


def measure_occupancy(nvcc, kernels, folder):
    """{kernel: {architecture: blocks}}, by mangled name."""
    program = pathlib.Path(folder) / "occupancy"
    flags = [flag for flag in FLAGS if "ptxas" not in flag]
    run = subprocess.run([nvcc, *flags, "-arch=sm_80", "-I", ROOT / "src", "-I",
                          pathlib.Path(folder) / "made", "-o", program,
                          pathlib.Path(__file__).with_name("occupancy.cu")],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"occupancy.cu does not compile:\n{run.stdout}{run.stderr}")
    names = demangle(list(kernels), shorten=False)
    lines = [" ".join(str(kernels[k][a]) for a in ARCHITECTURES) + " " + operands_of(names[k])
             for k in kernels]
    run = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"occupancy.cu: {run.stderr}")
    blocks = (line.split(maxsplit=len(ARCHITECTURES)) for line in run.stdout.splitlines())
    return {k: dict(zip(ARCHITECTURES, map(int, found[:-1]))) for k, found in zip(kernels, blocks)}


def compile_all(nvcc, folder):
    """What ptxas says of each file, and its PTX; object files are left in `folder`."""
    sources = sorted(made_sources(folder).glob("*.cu"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda s: compile_one(nvcc, s, folder), sources))


def measure(nvcc, objects):
    """{kernel: (registers, blocks)}, each by architecture, and what is wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = objects or scratch
        texts = compile_all(nvcc, folder)
        kernels, faults = parse("\n".join(text for text, _ in texts))
        blocks = measure_occupancy(nvcc, kernels, folder)
    names = demangle(list(kernels))
    problems = [f"{names[k]}: {v}" for k, v in faults]
    for _, ptx in texts:
        problems += check_ptx(ptx)
    return {names[k]: (v, blocks[k]) for k, v in kernels.items()}, problems


def ptxas_version(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", text).group(1)


def read_golden():
    lines = GOLDEN.read_text().splitlines()
    version = re.search(r"ptxas ([\d.]+)", lines[0]).group(1)
    kernels = {}
    for line in lines[1:]:
        *numbers, name = line.split(maxsplit=2 * len(ARCHITECTURES))
        numbers = list(map(int, numbers))
        kernels[name] = (dict(zip(ARCHITECTURES, numbers)),
                         dict(zip(ARCHITECTURES, numbers[len(ARCHITECTURES):])))
    return version, kernels


def main():
    nvcc = find_nvcc()
    if nvcc is None:
        print("there is no nvcc here: nothing was checked")
        return 77
    objects = None
    if "--objects" in sys.argv:
        objects = pathlib.Path(sys.argv[sys.argv.index("--objects") + 1])
        objects.mkdir(parents=True, exist_ok=True)
        for old in objects.glob("*.o"):
            old.unlink()
    kernels, problems = measure(nvcc, objects)
    version = ptxas_version(nvcc)
    if "--write" in sys.argv[1:]:
        archs = ", sm_".join(ARCHITECTURES)
        lines = [f"# registers on sm_{archs}, blocks on a multiprocessor of each, by ptxas {version}"]
        lines += [" ".join(f"{registers[a]:3}" for a in ARCHITECTURES) + "  " +
                  " ".join(f"{blocks[a]:2}" for a in ARCHITECTURES) + "  " + name
                  for name, (registers, blocks) in sorted(kernels.items())]
        GOLDEN.write_text("\n".join(lines) + "\n")
    pinned_version, pinned = read_golden()
    is_same = version == pinned_version
    for name in sorted(kernels.keys() | pinned.keys()):
        if name not in pinned or name not in kernels:
            problems.append(f"{name}: {'not in kernels.txt' if name in kernels else 'is gone'}")
            continue
        (registers, blocks), (most, least) = kernels[name], pinned[name]
        for arch in ARCHITECTURES:
            if registers[arch] > most[arch] + (0 if is_same else SLACK):
                problems.append(f"{name}: {registers[arch]} registers on sm_{arch}, "
                                f"{most[arch]} pinned")
            if blocks[arch] < least[arch] - (0 if is_same else 1):
                problems.append(f"{name}: {blocks[arch]} blocks on a multiprocessor of sm_{arch}, "
                                f"{least[arch]} pinned")
    for problem in problems:
        print(problem)
    print(f"{len(kernels)} kernels for {len(ARCHITECTURES)} architectures, "
          f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
