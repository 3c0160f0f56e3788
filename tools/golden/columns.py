"""Writes small tables with pyarrow, and beside each its rows as JSON lines, as pyarrow reads it back.

    python tools/golden/columns.py DIRECTORY

Null values within structs are left out of the rows, as the readers of src/atoll/data leave them out.
"""

import datetime
import decimal
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])


def chat():
    """Conversations as data sets of them are published."""
    def said(role, content):
        return {"role": role, "content": content}
    rows = [[said("user", "was it?"), said("assistant", "the answer")], [], None,
            [said("user", "naïve \"quotes\"\n日本語"), said("assistant", None)],
            [None, said("assistant", "")]] * 3
    return pa.table({"messages": pa.array(rows, pa.list_(MESSAGE)), "id": pa.array(range(15), pa.int32())})


def kinds():
    """A column of each kind of value, with nulls."""
    moment = datetime.datetime(2024, 2, 29, 12, 34, 56, 250000)
    return pa.table({
        "text": ["the answer", None, "", "the answer", "the end"],
        "large": pa.array(["a", "b", None, "c", "d" * 40], pa.large_string()),
        "whole": pa.array([1, -2, 3, None, 2**62], pa.int64()),
        "small": pa.array([1, 255, 0, None, 7], pa.uint8()),
        "most": pa.array([2**64 - 1, 0, 1, None, 7], pa.uint64()),
        "float": pa.array([0.5, -1.25, None, 3.0, 1e10], pa.float32()),
        "double": pa.array([0.1, -1e300, None, 3.0, 5e-324], pa.float64()),
        "flag": [True, False, None, True, True],
        "day": pa.array([moment.date(), None, datetime.date(1969, 12, 31), None, None], pa.date32()),
        "time": pa.array([moment, None, datetime.datetime(1969, 12, 31, 23, 59, 59, 500000), None, None],
                         pa.timestamp("ms")),
        "utc": pa.array([moment, None, None, None, None], pa.timestamp("us", tz="UTC")),
        "money": pa.array([decimal.Decimal("12.34"), decimal.Decimal("-0.05"), None, None, None],
                          pa.decimal128(12, 2)),
        "nested": pa.array([[[1, 2], []], None, [None, [3]], [], [[None]]], pa.list_(pa.list_(pa.int32()))),
        "deep": pa.array([{"a": {"b": "c"}}, None, {"a": None}, {"a": {"b": None}}, {"a": {"b": ""}}],
                         pa.struct([("a", pa.struct([("b", pa.string())]))])),
        "map": pa.array([[("k", 1)], None, [], [("k", None), ("l", 2)], [("", 3)]],
                        pa.map_(pa.string(), pa.int32())),
    })


def words():
    """Texts that repeat, and that begin alike."""
    return pa.table({"text": [None if i % 7 == 3 else f"word {i % 5}" for i in range(300)],
                     "path": [f"folder/{i // 10}/file-{i}.txt" for i in range(300)],
                     "count": pa.array([i * i % 1000 - 500 for i in range(300)], pa.int32())})


def plain(value):
    """A value as JSON has it."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds" if value.tzinfo is None else "microseconds")
        return text + ("Z" if value.tzinfo else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: plain(each) for key, each in value}
    return [plain(each) for each in value] if isinstance(value, list) else value


def write_rows(table, path):
    """The rows of a table beside its file."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    with open(path.with_name(path.name + ".jsonl"), "w", encoding="utf-8") as out:
        for row in table.to_pylist():
            row = {key: {} if key in maps and value == [] else plain(value) for key, value in row.items()}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    """See above."""
    directory = pathlib.Path(sys.argv[1])
    parquet = {
        "chat": (chat(), {"compression": "snappy", "row_group_size": 4}),
        "chat-v2": (chat(), {"compression": "zstd", "data_page_version": "2.0", "write_page_checksum": True}),
        "kinds": (kinds(), {"compression": "none", "use_dictionary": False}),
        "kinds-v2": (kinds(), {"compression": "gzip", "data_page_version": "2.0"}),
        "words": (words(), {"compression": "lz4", "data_page_size": 256, "row_group_size": 120}),
        "words-delta": (words(), {"compression": "zstd", "use_dictionary": False, "data_page_size": 256,
                                  "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY", "path": "DELTA_BYTE_ARRAY",
                                                      "count": "DELTA_BINARY_PACKED"}}),
        "words-split": (words().select(["count"]), {"use_dictionary": False,
                                                    "column_encoding": {"count": "BYTE_STREAM_SPLIT"}}),
    }
    for name, (table, options) in parquet.items():
        path = directory / f"{name}.parquet"
        pq.write_table(table, path, **options)
        write_rows(pq.read_table(path), path)
    for name, table, codec in (("chat", chat(), None), ("kinds", kinds(), "lz4"), ("words", words(), "zstd")):
        if name == "words":
            table = table.append_column("dictionary", table["text"].dictionary_encode())
            table = table.append_column("view", table["text"].cast(pa.string_view()))
        make = pa.ipc.new_file if name == "words" else pa.ipc.new_stream
        path = directory / f"{name}.arrow"
        with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as out:
            out.write_table(table, max_chunksize=100)
        write_rows(table, path)


if __name__ == "__main__":
    main()
