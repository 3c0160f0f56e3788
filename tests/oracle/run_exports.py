"""Checks what `atoll runs export` writes with the packages that read it: wandb and trackio, from PyPI.

    python3 run_exports.py ATOLL RUN    # the program, and the directory of a run

Needs wandb and trackio (tried with 0.31.0 and 0.43.0); asks nothing of any network.
"""

import csv
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

BLOCK = 32768


def records_of(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    for line in lines:
        record = json.loads(line)
        yield {k: special.get(v, v) if isinstance(v, str) else v for k, v in record.items()}


def same(a, b):
    both = isinstance(a, float) and isinstance(b, float)
    return a == b or (both and math.isnan(a) and math.isnan(b))


def check(condition, what):
    if not condition:
        sys.exit(f"error: {what}")


def wandb_records(path):
    """Of LevelDB's log format, each with its checksum; the messages are wandb's own."""
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    check(data[:7] == b":W&B" + struct.pack("<HB", 0xBEE1, 0), f"the header is {data[:7]!r}")
    at, whole = 7, b""
    while at < len(data):
        room = BLOCK - at % BLOCK
        if room < 7:
            at += room
            continue
        crc, size, kind = struct.unpack("<IHB", data[at : at + 7])
        piece = data[at + 7 : at + 7 + size]
        check(crc == zlib.crc32(bytes([kind]) + piece), f"the checksum at byte {at}")
        at += 7 + size
        whole = piece if kind in (1, 2) else whole + piece
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record


def check_wandb(atoll, run, out):
    subprocess.run([atoll, "runs", "export", run, "--format", "wandb", "--out", out], check=True)
    (file,) = out.glob("offline-run-*/run-*.wandb")
    wanted = {}
    for record in records_of(run):
        wanted.setdefault(record["step"], {}).update(record)
    found, kinds, config = {}, [], {}
    for record in wandb_records(file):
        kinds.append(record.WhichOneof("record_type"))
        if kinds[-1] == "history":
            values = {i.key: json.loads(i.value_json) for i in record.history.item}
            found[record.history.step.num] = values
        if kinds[-1] == "run":
            config = {i.key: json.loads(i.value_json) for i in record.run.config.update}
            check(record.run.run_id in file.name, "the run's ID")
    check(kinds[:2] == ["header", "run"] and kinds[-2:] == ["summary", "exit"], kinds)
    check(found.keys() == wanted.keys(), "the steps")
    for step, values in wanted.items():
        for key, value in values.items():
            if key not in ("step", "time"):
                check(same(found[step][key], value), f"{key} at step {step}")
    check("optim.lr" in config and isinstance(config["optim.lr"], (int, float)), "the configuration")
    print(f"wandb: {len(found)} steps, {len(config)} settings")


def check_trackio(atoll, run, out):
    subprocess.run([atoll, "runs", "export", run, "--format", "trackio", "--out", out], check=True)
    os.environ["TRACKIO_DIR"] = str(out)
    from trackio.sqlite_storage import SQLiteStorage

    names = SQLiteStorage.get_runs("atoll")
    check(names == [run.name], f"the runs are {names}")
    logs = SQLiteStorage.get_logs("atoll", run.name)
    wanted = list(records_of(run))
    check(len(logs) == len(wanted), f"{len(logs)} records of {len(wanted)}")
    for log, record in zip(logs, wanted):
        check(log["step"] == record["step"], "a step")
        for key, value in record.items():
            if key not in ("step", "time"):
                check(same(log[key], value), f"{key} at step {record['step']}")
    config = SQLiteStorage.get_run_config("atoll", run.name)
    check("optim.lr" in config, "the configuration")
    # Its own tables come on top, and the run can go on there.
    SQLiteStorage.bulk_log("atoll", "another", [{"loss": 1.0}], steps=[1])
    check(set(SQLiteStorage.get_runs("atoll")) == {run.name, "another"}, "a second run")
    print(f"trackio: {len(logs)} records, {len(config)} settings")


def check_csv(atoll, run, out):
    subprocess.run([atoll, "runs", "export", run, "--format", "csv", "--out", out], check=True)
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = list(records_of(run))
    check(len(rows) == len(wanted), "rows")
    for row, record in zip(rows, wanted):
        for key, value in record.items():
            if isinstance(value, (int, float)):
                check(same(float(row[key]), float(value)), f"{key} at step {record['step']}")
            else:
                check(row[key] == value, key)
    print(f"csv: {len(rows)} records")


def main():
    atoll, run = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory)
        check_csv(atoll, run, out / "run.csv")
        check_wandb(atoll, run, out / "wandb")
        check_trackio(atoll, run, out / "trackio")


main()
