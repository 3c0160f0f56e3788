"""Makes the fixtures of tools/golden again and compares them with those in the repository, and has
the libraries read what today's code writes.

    python tests/oracle/golden.py build/release/bin/atoll WORK_DIRECTORY

The tests that compare code with fixtures are part of `./dev test`; here it is seen that the
fixtures are what the libraries say.
"""

import filecmp
import importlib
import json
import math
import os
import re
import sys

from reference.checks import ROOT, Checks, arguments, expect, needs, run

GOLDEN = ROOT / "tools" / "golden"
sys.path.insert(0, str(GOLDEN))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def script(name, *words, **options):
    """What a script of tools/golden prints."""
    return run(sys.executable, GOLDEN / name, *words, **options).decode()


def gtest(program, name, pattern, variable, directory):
    """Runs tests that write into a directory which an environment variable names."""
    binary = program.parent.parent / name
    expect(binary.exists(), f"{binary} is not built")
    said = run(binary, f"--gtest_filter={pattern}", cwd=directory,
               env=os.environ | {variable: str(directory)}).decode()
    expect("[  PASSED  ] 0 tests" not in said and "SKIPPED" not in said,
           f"{binary.name} ran no test {pattern}")


def same_files(ours, theirs, names):
    """Files of two directories, byte for byte."""
    _, different, missing = filecmp.cmpfiles(ours, theirs, names, shallow=False)
    expect(not different and not missing, f"made again, {', '.join(different + missing)} differ")


def families_read(program, work):
    """Model directories that atoll writes, in transformers."""
    gtest(program, "tests/golden_test", "*WritesWhatTransformersReads*", "ATOLL_FAMILIES_ORACLE",
          work)
    said = script("families.py", "check", work)
    return f"{len(said.splitlines())} directories"


def families_again(work):
    """The fixtures of tests/golden, from transformers, torch and PEFT."""
    from safetensors.numpy import load_file
    import numpy as np

    families = importlib.import_module("families")
    fixtures, families.ROOT = families.ROOT, work
    out = script_of(families.main, "families.py", "write")
    count = 0
    for path in sorted(fixtures.rglob("*.safetensors")):
        theirs, ours = load_file(work / path.relative_to(fixtures)), load_file(path)
        where = path.relative_to(fixtures)
        expect(theirs.keys() == ours.keys(), f"{where} has other tensors: {out}")
        for name, tensor in theirs.items():
            count += 1
            if tensor.dtype != np.float32 or path.name != "expected.safetensors":
                expect(np.array_equal(tensor, ours[name]), f"{where}: {name} differs")
                continue
            # As far apart as tests/golden lets atoll be: gradients are differences of larger sums.
            error = np.abs(tensor - ours[name]).max() / np.abs(tensor).max()
            most = 1e-4 if name.startswith("gradient.") else 1e-5
            expect(error < most, f"{where}: {name} differs by {error:.1e} of its largest")
    return f"{count} tensors"


def script_of(main, *words):
    """Runs the main function of a script that was changed after its import."""
    before, sys.argv = sys.argv, list(words)
    try:
        stdout, sys.stdout = sys.stdout, open(os.devnull, "w", encoding="utf-8")
        try:
            return main()
        finally:
            sys.stdout.close()
            sys.stdout = stdout
    finally:
        sys.argv = before


def safetensors(program, work):
    """Both ways."""
    script("safetensors_oracle.py", "write", work)
    gtest(program, "src/atoll/ckpt_test", "*Library*", "ATOLL_SAFETENSORS_GOLDEN", work)
    script("safetensors_oracle.py", "check", work)


def tokenizers():
    """Ids and texts of the fixtures, from the library. Training the fixtures again would not give
    the same ones: the library's trainer breaks ties as its hash tables happen to lie."""
    needs("tokenizers")
    from tokenizers import Tokenizer

    oracle = importlib.import_module("tokenizer_oracle")
    data = ROOT / "src" / "atoll" / "text" / "testdata"
    strings = [oracle.lossy(s) for s in oracle.awkward_strings(oracle.NUM_STRINGS, oracle.SEED)]
    expected = json.loads((data / "hashes.json").read_text())
    for kind, hashes in expected.items():
        library = Tokenizer.from_file(str(data / f"{kind}.json"))
        expect(oracle.hashes(library, strings) == hashes, f"{kind}.json has other ids or texts")
    return f"{len(strings)} strings in {len(expected)} kinds"


def normalizers(work):
    """Every code point in the library's normalizers."""
    needs("tokenizers")
    needs("unicodedata2")
    folder = work / "src/atoll/text"
    (folder / "testdata").mkdir(parents=True)
    script("unicode_oracle.py", folder)
    names = ["unicode_pins.inc", "testdata/normalizers.json"]
    same_files(ROOT / "src/atoll/text", folder, names)
    return "every code point"


def classes(work):
    """Every code point in the library's classes of characters, and in its scripts."""
    needs("tokenizers")
    script("unicode_classes.py", work / "unicode_classes.inc")
    script("unicode_scripts.py", work / "unicode_scripts.inc")
    same_files(ROOT / "src/atoll/text", work, ["unicode_classes.inc", "unicode_scripts.inc"])
    return "every code point"


def chats(work):
    """What jinja2 renders."""
    name = "src/atoll/text/testdata/chat_templates.json"
    (work / name).parent.mkdir(parents=True)
    script("chat_oracle.py", cwd=work)
    same_files(ROOT, work, [name])
    return f"{len(json.loads((work / name).read_text())['cases'])} cases"


def optimizers():
    """What torch.optim and the papers' rules come to."""
    ours = (ROOT / "src" / "atoll" / "optim" / "optim_oracle.inc").read_text()
    theirs = script("optim_oracle.py")
    expect(NUMBER.sub("", ours) == NUMBER.sub("", theirs), "optim_oracle.inc says other things")
    for mine, other in zip(map(float, NUMBER.findall(ours)), map(float, NUMBER.findall(theirs))):
        # Both f64; another machine's products may round elsewhere.
        expect(math.isclose(mine, other, rel_tol=1e-11, abs_tol=1e-13), f"{mine} is now {other}")
    return f"{len(NUMBER.findall(ours))} numbers"


def muon():
    """Our orthogonal matrices beside torch's, which computes them in bf16."""
    said = script("optim_oracle.py", "--compare-muon")
    differences = [float(found) for found in re.findall(r"difference ([0-9.]+)", said)]
    # Five Newton-Schulz steps of three products, each rounded to half of 2^-8: at most, in one
    # direction all, 7.5.
    expect(differences and max(differences) < 7.5 * 2**-8, f"torch's Muon is far away: {said}")
    return f"within {max(differences) * 2**8:.1f} x 2^-8"


def data_orders():
    """The orders of samples, from the page that states them."""
    tables = {"--known": "sampler", "--documents": "document", "--mixture": "mixture"}
    for flag, name in tables.items():
        path = ROOT / "src" / "atoll" / "data" / f"{name}_known_values.inc"
        expect(script("data_order.py", flag) == path.read_text(), f"{path.name} is another now")


def ggufs(program, work):
    """The fixture of quantized tensors, and tensors that atoll quantizes."""
    needs("gguf")
    oracle = importlib.import_module("gguf_oracle")
    fixtures, oracle.DATA = oracle.DATA, work
    script_of(oracle.write, "gguf_oracle.py")
    same_files(fixtures, work, ["quants.gguf", "quants.f32"])
    gtest(program, "src/atoll/ckpt_test", "KQuants.Writes*", "ATOLL_GGUF_GOLDEN", work)
    return script("gguf_oracle.py", work / "k_quants.gguf").strip().splitlines()[-1]


def tensorboard(program, work):
    """Event files that atoll writes, read by TensorBoard."""
    needs("tensorboard")
    gtest(program, "src/atoll/watch_test", "*Library*", "ATOLL_TENSORBOARD_GOLDEN", work)
    script("tensorboard_oracle.py", work)


def main():
    """See above."""
    program, work = arguments("golden")
    checks = Checks("golden")

    def directory(name):
        (work / name).mkdir()
        return work / name

    checks.run("families.py check", families_read, program, directory("families-read"))
    checks.run("families.py write", families_again, directory("families"))
    checks.run("safetensors_oracle.py", safetensors, program, directory("safetensors"))
    checks.run("tokenizer_oracle.py", tokenizers)
    checks.run("unicode_oracle.py", normalizers, directory("normalizers"))
    checks.run("unicode_classes.py, unicode_scripts.py", classes, directory("classes"))
    checks.run("chat_oracle.py", chats, directory("chats"))
    checks.run("optim_oracle.py", optimizers)
    checks.run("optim_oracle.py --compare-muon", muon)
    checks.run("data_order.py", data_orders)
    checks.run("gguf_oracle.py", ggufs, program, directory("gguf"))
    checks.run("tensorboard_oracle.py", tensorboard, program, directory("tensorboard"))
    checks.finish()


if __name__ == "__main__":
    main()
