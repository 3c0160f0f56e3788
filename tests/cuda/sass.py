#!/usr/bin/env python3
"""What the machine code of the kernels has that PTX does not show.

    sass.py [OBJECTS]

Disassembles the kernels for sm_80, sm_90 and sm_100 with cuobjdump and nvdisasm. OBJECTS is a folder that
`kernels.py --objects` has filled; without one the kernels are compiled first. In no kernel may there be
loads or stores of local memory (LDL, STL), float sums in memory (RED, ATOM), or arithmetic in double but
for kernels.KERNELS_OF_DOUBLES. Tensor cores (HMMA) are in kernels.TENSOR_CORES and nowhere else. A kernel
whose last argument is a pack of 16 bytes loads as many at once (LDG or LDGSTS, .128), and stores them so
where it writes such packs. Needs no GPU. Exits with 77 where there is no nvcc or no disassembler: the
toolkit has both programs, and so have the PyPI packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm.
"""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kernels  # noqa: E402

TOOLS = ("cuobjdump", "nvdisasm")
# What writes sums and statistics alone, whatever packs it reads.
WRITES_NO_PACKS = {"ColumnPartials", "SquarePartials", "FewRows"}
# Statistics are kept in double, and nothing is computed in it.
KEEPS_DOUBLES = {"SoftmaxPart"}
# ptxas loads of a pack only the elements that are kept.
READS_PARTS_OF_PACKS = {("DropoutPart<Bf16, 4>", "100")}
# Four bf16 are 8 bytes; of two types, the narrower one.
HALF_A_PACK = re.compile(r"\bBf16, (float, )?4\b")
DOUBLES = re.compile(r"\b(DADD|DMUL|DFMA|DSETP|DMNMX|DMMA|MUFU\.\w+64H|F2F\.F64\.\w+)\b")
FLOAT_SUMS = re.compile(r"\b(RED|REDG|ATOM|ATOMG|ATOMS)\.[\w.]*(F16|BF16|F32|F64)[\w.]*")


def find_tools():
    """The folder with both programs: of PATH, of the toolkit, or of PyPI's packages; None without."""
    folders = os.environ["PATH"].split(os.pathsep) + ["/usr/local/cuda/bin"]
    if spec := importlib.util.find_spec("nvidia"):
        folders += [str(bin) for root in spec.submodule_search_locations
                    for bin in pathlib.Path(root).glob("*/bin")]
    for folder in folders:
        if all(shutil.which(tool, path=folder) for tool in TOOLS):
            return folder
    return None


def disassemble(folder, compiled):
    """(kernel, architecture, text) of each kernel in an object file."""
    environment = os.environ | {"PATH": folder + os.pathsep + os.environ["PATH"]}
    run = subprocess.run([pathlib.Path(folder) / "cuobjdump", "-sass", compiled], env=environment,
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"cuobjdump of {compiled.name}: {run.stderr}")
    found = []
    for code in re.split(r"^\s*code for ", run.stdout, flags=re.M)[1:]:
        architecture = re.match(r"sm_(\w+)", code).group(1)
        for function in re.split(r"^\s*Function : ", code, flags=re.M)[1:]:
            name, _, text = function.partition("\n")
            found.append((name.strip(), architecture, text))
    names = kernels.demangle([name for name, _, _ in found])
    return [(names[name], architecture, text) for name, architecture, text in found]


def faults_of(name, architecture, text):
    """What a kernel's code has that it must not have, or lacks."""
    kind = name.split("<")[0]
    if local := re.search(r"\b(LDL|STL)\b[\w.]*", text):
        yield f"has {local.group()}: local memory"
    if sum_in_memory := FLOAT_SUMS.search(text):
        yield f"has {sum_in_memory.group()}: a float sum in no order"
    double = DOUBLES.search(text)
    if double and kind not in kernels.KERNELS_OF_DOUBLES | KEEPS_DOUBLES:
        yield f"has {double.group()}: double"
    if ("HMMA" in text) != (kind in kernels.TENSOR_CORES):
        yield "has HMMA" if "HMMA" in text else "has no HMMA"
    if kernels.is_of_packs(name):
        wide = "(64|128)" if HALF_A_PACK.search(name) else "128"
        reads_parts = (name, architecture) in READS_PARTS_OF_PACKS
        reads = kind not in kernels.WRITE_ALONE and not reads_parts
        if reads and not re.search(rf"\bLDG(STS)?\.[\w.]*{wide}", text):
            yield "loads no whole pack at once"
        if kind not in WRITES_NO_PACKS and not re.search(rf"\bSTG\.[\w.]*{wide}", text):
            yield "stores no whole pack at once"


def main():
    nvcc, tools = kernels.find_nvcc(), find_tools()
    if nvcc is None or tools is None:
        print(f"there is no {'nvcc' if nvcc is None else ' or no '.join(TOOLS)} here: nothing was "
              "checked")
        return 77
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        objects = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(scratch)
        if not any(objects.glob("*.o")):
            objects.mkdir(exist_ok=True)
            kernels.compile_all(nvcc, objects)
        for compiled in sorted(objects.glob("*.o")):
            for name, architecture, text in disassemble(tools, compiled):
                count += 1
                problems += [f"{name} on sm_{architecture}: {fault}" for fault in
                             faults_of(name, architecture, text)]
    for problem in problems:
        print(problem)
    print(f"{count} machine codes, {len(problems)} problems")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
