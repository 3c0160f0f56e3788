"""The config.json of published uploads: transformers' logits beside atoll's.

    python tests/oracle/uploads.py build/release/bin/atoll WORK_DIRECTORY

tests/golden/uploads has for each family a list of configs in small sizes with the fields that
uploads have. transformers makes a random model of each that atoll reads, and computes its logits;
golden_test loads the same directory and compares.
"""

import json
import os
import sys

import torch
import transformers

from reference.checks import ROOT, Checks, arguments, expect, needs, run

sys.path.insert(0, str(ROOT / "tools" / "golden"))
import families  # noqa: E402: see above

UPLOADS = ROOT / "tests" / "golden" / "uploads"
AUTO_CLASSES = {"multimodal": "AutoModelForImageTextToText"}


def save_random(upload, directory, auto_class, seed):
    """A model of this config.json with random weights, and what transformers computes from it."""
    directory.mkdir(parents=True)
    config = {k: v for k, v in upload["config"].items() if k != "quantization_config"}
    written = json.dumps(config, indent=2) + "\n"
    (directory / "config.json").write_text(written)
    generator = torch.Generator().manual_seed(seed)
    model = auto_class.from_config(transformers.AutoConfig.from_pretrained(directory))
    model = model.to(torch.float32)
    families.randomize(model, generator)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    (directory / "config.json").write_text(written)

    model = auto_class.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32)
    tokens = torch.randint(0, families.VOCAB, (families.BATCH, families.LENGTH),
                           generator=generator)
    with torch.no_grad():
        logits = model.eval()(input_ids=tokens).logits
    families.save(directory / "expected.safetensors", dict(tokens=tokens, logits=logits))


def compare(program, work, family):
    """All uploads of one family."""
    auto_class = getattr(transformers, AUTO_CLASSES.get(family, "AutoModelForCausalLM"))
    uploads = json.loads((UPLOADS / f"{family}.json").read_text())
    left_out = ("refused", "only_atoll")  # the second says why transformers does not read it
    read = [upload for upload in uploads if not any(key in upload for key in left_out)]
    for number, upload in enumerate(read):
        save_random(upload, work / f"{number:02}", auto_class, number)
    test = program.parent.parent / "tests" / "golden_test"
    out = run(test, "--gtest_filter=Uploads.LogitsAreThoseOfTransformers",
              env={**os.environ, "ATOLL_UPLOADS_ORACLE": str(work)}).decode()
    expect("[  PASSED  ] 1 test." in out, f"golden_test did not run: {out}")
    return f"{len(read)} configs, {len(uploads) - len(read)} left out"


def main():
    """See above."""
    program, work = arguments("uploads")
    checks = Checks("uploads")
    needs("torch")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for path in sorted(UPLOADS.glob("*.json")):
        checks.run(path.stem, compare, program, work / path.stem, path.stem)
    checks.finish()


if __name__ == "__main__":
    main()
