"""A Python wheel that carries the program: `pip install` puts `atoll` where it puts scripts.

    python3 tools/make_wheel.py PREFIX VERSION OUTPUT_DIRECTORY

PREFIX is where `cmake --install` has put everything. The wheel has the program, the libraries that it
needs beyond glibc with their licences, the recipes, the manual and completions, and no Python code. Its
tag says which glibc it needs: the one of this machine. Needs patchelf. Prints the wheel's path.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

# Parts of glibc, which every Linux for this tag has.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|mvec|anl|nsl))\.so.*")
SUMMARY = "Trains and serves language models on one machine, a cluster, or islands of machines"


def output(*command):
    """What a program prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries_of(program):
    """{name: file} of all libraries that it loads, but for those of the system."""
    found = {}
    for line in output("ldd", program).splitlines():
        name, _, rest = line.strip().partition(" => ")
        if not rest or SYSTEM.fullmatch(name):
            continue
        file = rest.rpartition(" (")[0]
        if not file:
            sys.exit(f"{name} of {program} is not on this machine")
        found[name] = pathlib.Path(file).resolve()
    return found


def licences_of(files):
    """{name of the Debian package: its copyright} of these files."""
    owners = {}
    for file in files:
        # A package may know a file by the path from before /usr was merged.
        for path in (str(file), str(file).removeprefix("/usr")):
            known = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False)
            if known.returncode == 0:
                package = known.stdout.partition(":")[0]
                owners[package] = pathlib.Path("/usr/share/doc", package, "copyright").read_bytes()
                break
        else:
            sys.exit(f"no package has {file}, so its licence is not known")
    return owners


def with_rpath(file, rpath, directory):
    """The bytes of a program or library that looks for its libraries there first."""
    copy = directory / file.name
    copy.write_bytes(file.read_bytes())
    subprocess.run(["strip", "--strip-unneeded", copy], check=True)
    # Of the program alone, DT_RPATH would hold for its libraries too; each gets one of its own.
    subprocess.run(["patchelf", "--set-rpath", rpath, copy], check=True)
    return copy.read_bytes()


class Wheel:
    """A wheel under construction."""

    def __init__(self, path):
        self.file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.record = []

    def add(self, name, content, executable=False):
        """A file of these bytes."""
        # The same bytes make the same wheel.
        info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.file.writestr(info, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def finish(self, name):
        """Writes the list of all files, under its own name."""
        lines = "\n".join([*self.record, f"{name},,"]) + "\n"
        self.file.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), lines)
        self.file.close()


def tag():
    """manylinux_2_36_x86_64: with this glibc or a later one."""
    version = platform.libc_ver()[1].replace(".", "_")
    return f"manylinux_{version}_{platform.machine()}"


def main():
    """See above."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    prefix, version, target = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    program = prefix / "bin" / "atoll"
    libraries = libraries_of(program)
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"atoll-{version}-py3-none-{tag()}.whl"
    data, info = f"atoll-{version}.data", f"atoll-{version}.dist-info"
    wheel = Wheel(path)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        wheel.add(f"{data}/scripts/atoll", with_rpath(program, "$ORIGIN/../lib/atoll", work), True)
        for library, file in sorted(libraries.items()):
            content = with_rpath(file, "$ORIGIN", work)
            wheel.add(f"{data}/data/lib/atoll/{library}", content, True)
    for part in ("share/atoll", "share/man", "share/bash-completion", "share/zsh", "share/fish"):
        for file in sorted((prefix / part).rglob("*")):
            if file.is_file():
                wheel.add(f"{data}/data/{file.relative_to(prefix)}", file.read_bytes())
    root = pathlib.Path(__file__).resolve().parents[1]
    wheel.add(f"{info}/licenses/LICENSE", (root / "LICENSE").read_bytes())
    for package, text in sorted(licences_of(libraries.values()).items()):
        wheel.add(f"{info}/licenses/{package}", text)
    metadata = (
        f"Metadata-Version: 2.1\nName: atoll\nVersion: {version}\nSummary: {SUMMARY}\n"
        "Description-Content-Type: text/markdown\n\n"
    )
    wheel.add(f"{info}/METADATA", metadata.encode() + (root / "README.md").read_bytes())
    wheel.add(
        f"{info}/WHEEL",
        "Wheel-Version: 1.0\nGenerator: atoll\nRoot-Is-Purelib: false\n"
        f"Tag: py3-none-{tag()}\n".encode(),
    )
    wheel.finish(f"{info}/RECORD")
    print(os.path.relpath(path))


if __name__ == "__main__":
    main()
