#!/usr/bin/env python3
"""Checks our safetensors files against the `safetensors` library, both ways.

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install safetensors==0.8.0 numpy
    .venv-golden/bin/python tools/golden/safetensors_oracle.py write DIRECTORY
    ATOLL_SAFETENSORS_GOLDEN=DIRECTORY build/release/src/atoll/ckpt_test --gtest_filter='*Library*'
    .venv-golden/bin/python tools/golden/safetensors_oracle.py check DIRECTORY

`write` makes theirs.safetensors; the test compares it with values that it knows by the same rule,
and writes ours.safetensors with the same tensors; `check` reads that with the library.
"""

import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

METADATA = {"format": "np", "note": "naïve \"quotes\""}


def tensors():
    """What both sides know: element i of every tensor is i - 3, in its dtype."""

    def ramp(dtype, *shape):
        return (np.arange(np.prod(shape, dtype=np.int64)) - 3).astype(dtype).reshape(shape)

    return {
        "f32": ramp(np.float32, 3, 5),
        "f64": ramp(np.float64, 2, 1, 3),
        "f16": ramp(np.float16, 7),
        "i32": ramp(np.int32, 2, 2, 2, 2),
        "i64": ramp(np.int64, 4),
        "u8": ramp(np.int64, 5).astype(np.uint8),
        "scalar": ramp(np.float32).reshape(()),
        "empty": ramp(np.float32, 0, 4),
        "ünïcödé.weight": ramp(np.float32, 2),
    }


def check(path):
    """Fails unless the file has exactly these tensors, bit for bit, and this metadata."""
    loaded = load_file(path)
    expected = tensors()
    assert loaded.keys() == expected.keys(), loaded.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert loaded[name].dtype == tensor.dtype, name
        assert loaded[name].shape == tensor.shape, name
        assert loaded[name].tobytes() == tensor.tobytes(), name
    with safe_open(path, framework="np") as file:
        assert file.metadata() == METADATA, file.metadata()
    print(f"{path}: {len(expected)} tensors agree")


def main():
    verb, directory = sys.argv[1], Path(sys.argv[2])
    if verb == "write":
        save_file(tensors(), directory / "theirs.safetensors", metadata=METADATA)
    elif verb == "check":
        check(directory / "ours.safetensors")
        check(directory / "theirs.safetensors")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
