#!/usr/bin/env python3
"""Writes a study's trials as a table: a column a setting, then the held-out loss at each evaluation.

    python3 bench/tune_surface.py studies/surface >src/atoll/tune/testdata/surface.csv
"""

import json
import subprocess
import sys


def main():
    atoll = sys.argv[2] if len(sys.argv) > 2 else "build/release/bin/atoll"
    shown = subprocess.run([atoll, "tune", "show", sys.argv[1], "--json"], check=True, capture_output=True).stdout
    trials = json.loads(shown)["trials"]
    keys = list(trials[0]["settings"])
    steps = [step for step, _ in trials[0]["curve"]]
    print(",".join(keys + [str(step) for step in steps]))
    for trial in trials:
        curve = dict(trial["curve"])
        losses = [f"{curve[step]:.5f}" if curve.get(step) is not None else "nan" for step in steps]
        print(",".join([trial["settings"][key] for key in keys] + losses))


if __name__ == "__main__":
    main()
