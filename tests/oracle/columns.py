"""Rows of files that other programs wrote: read here and by pyarrow, equal row by row.

    python tests/oracle/columns.py build/release/bin/atoll WORK_DIRECTORY

parquet  pyarrow, polars and duckdb: each encoding, page version, compression and
         type, nulls, nested lists and structs, pages of a few values, row groups of a few rows.
arrow    streams and files, with dictionaries, views, large types, lz4 and zstd.
text     CSV and TSV as Python writes them, arrays of JSON, JSONL and tars, compressed or not.
damage   files cut off anywhere, and with a byte changed: refused, or read with the same rows.
"""

import bz2
import csv
import datetime
import decimal
import gzip
import io
import json
import lzma
import math
import pathlib
import random
import subprocess
import sys
import tarfile
import uuid

from reference.checks import Checks, arguments, expect, needs

WORDS = ["", "a", "the answer", "a \"quoted\" word", "two\nlines\tand a tab", "naïve café 日本語 🙂",
         "back\\slash", "\x01 control", "x" * 300]


def reader_of(atoll):
    return pathlib.Path(atoll).parents[1] / "bench" / "rows_bench"


def read_rows(reader, path, *flags):
    done = subprocess.run([reader, "--json", path, *flags], capture_output=True)
    if done.returncode != 0:
        return None, done.stderr.decode(errors="replace")
    # Not splitlines(), which knows more line ends.
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]], ""


def plain(value, is_map=False):
    """A value of pyarrow as the rows here have it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if hasattr(value, "nanosecond") and not isinstance(value, datetime.datetime):
        return str(value)
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat()
        return text + ("Z" if value.tzinfo else "")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {str(key): plain(each) for key, each in value}
        return [plain(each) for each in value]
    return value


def seen(value):
    """A value of ours in the same form."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, dict):
        return {key: seen(each) for key, each in value.items()}
    if isinstance(value, list):
        return [seen(each) for each in value]
    if isinstance(value, str) and len(value) > 19 and value[10:11] == "T" and "." in value:
        return value
    return value


def same(ours, theirs):
    """Equal but for the digits that a time or a float of 32 bits is written with."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, dict) and theirs == []:
        return ours == {}  # an empty map
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-6)
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours == theirs or (ours[:4].isdigit() or ours[:2].isdigit()) and \
            ours.rstrip("Z0.") == theirs.rstrip("Z0.")
    return ours == theirs


def compare(reader, path, table):
    """How many rows are equal; fails at the first that is not."""
    rows, problem = read_rows(reader, path)
    expect(rows is not None, f"{path.name}: {problem}")
    expected = table.to_pylist()
    expect(len(rows) == len(expected), f"{path.name}: {len(rows)} rows, not {len(expected)}")
    for number, (row, other) in enumerate(zip(rows, expected)):
        other = {key: plain(value) for key, value in other.items()}
        row = seen(row)
        expect(same(row, other), f"{path.name} row {number + 1}: {row} instead of {other}")
    return len(rows)


def texts(count, seed, nulls=0.2):
    draw = random.Random(seed)
    return [None if draw.random() < nulls else draw.choice(WORDS) + str(draw.randrange(50))
            for _ in range(count)]


def table_of(count, seed):
    """Each type that is read, with nulls and without, and nested."""
    import pyarrow as pa
    draw = random.Random(seed)

    def some(make, nulls=0.2):
        return [None if draw.random() < nulls else make() for _ in range(count)]

    def moment():
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(
            microseconds=draw.randrange(-10**15, 4 * 10**15))

    message = pa.struct([("role", pa.string()), ("content", pa.string()),
                         ("weight", pa.float32())])
    conversation = [None if draw.random() < .1 else
                    [None if draw.random() < .05 else
                     {"role": draw.choice(["user", "assistant"]), "content": draw.choice(WORDS),
                      "weight": draw.choice([None, 0.5])} for _ in range(draw.randrange(4))]
                    for _ in range(count)]
    nested = [None if draw.random() < .1 else
              [None if draw.random() < .1 else [draw.randrange(9) for _ in range(draw.randrange(3))]
               for _ in range(draw.randrange(3))] for _ in range(count)]
    columns = {
        "text": pa.array(texts(count, seed), pa.string()),
        "whole": pa.array(texts(count, seed + 1, 0), pa.string()),
        "big": pa.array(texts(count, seed + 2), pa.large_string()),
        "bytes": pa.array([None if t is None else t.encode() for t in texts(count, seed + 3)],
                          pa.binary()),
        "i8": pa.array(some(lambda: draw.randrange(-128, 128)), pa.int8()),
        "u8": pa.array(some(lambda: draw.randrange(256)), pa.uint8()),
        "i16": pa.array(some(lambda: draw.randrange(-2**15, 2**15)), pa.int16()),
        "u32": pa.array(some(lambda: draw.randrange(2**32)), pa.uint32()),
        "i32": pa.array(some(lambda: draw.randrange(-2**31, 2**31)), pa.int32()),
        "i64": pa.array(some(lambda: draw.randrange(-2**63, 2**63)), pa.int64()),
        "u64": pa.array(some(lambda: draw.randrange(2**64)), pa.uint64()),
        "few": pa.array(some(lambda: draw.randrange(3)), pa.int32()),
        "f32": pa.array(some(lambda: draw.gauss(0, 1)), pa.float32()),
        "f64": pa.array(some(lambda: draw.choice([draw.gauss(0, 1), 1e300, -0.0, 3.0])),
                        pa.float64()),
        "flag": pa.array(some(lambda: draw.random() < .5), pa.bool_()),
        "date": pa.array(some(lambda: moment().date()), pa.date32()),
        "ms": pa.array(some(lambda: moment().replace(microsecond=123000)), pa.timestamp("ms")),
        "us": pa.array(some(moment), pa.timestamp("us", tz="UTC")),
        "clock": pa.array(some(lambda: moment().time()), pa.time64("us")),
        "money": pa.array(some(lambda: decimal.Decimal(draw.randrange(-10**8, 10**8)) / 100),
                          pa.decimal128(12, 2)),
        "large_money": pa.array(some(lambda: decimal.Decimal(draw.randrange(10**20)) / 10000),
                                pa.decimal256(40, 4)),
        "fixed": pa.array(some(lambda: bytes(draw.choices(b"abcd", k=5))), pa.binary(5)),
        "messages": pa.array(conversation, pa.list_(message)),
        "nested": pa.array(nested, pa.list_(pa.list_(pa.int32()))),
        "struct": pa.array(some(lambda: {"a": draw.choice([None, 1]), "b": {"c": "deep"}}),
                           pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        "map": pa.array(some(lambda: [("k", draw.randrange(5))]), pa.map_(pa.string(), pa.int32())),
        "nothing": pa.nulls(count),
    }
    return pa.table(columns)


def parquet_pyarrow(reader, work):
    import pyarrow.parquet as pq
    table = table_of(500, 1)
    count = 0
    for version in ("1.0", "2.0"):
        for codec in ("none", "snappy", "gzip", "zstd", "lz4"):
            for dictionary in (True, False):
                path = work / f"pyarrow-{version}-{codec}-{dictionary}.parquet"
                pq.write_table(table, path, data_page_version=version, compression=codec,
                               use_dictionary=dictionary, row_group_size=137, data_page_size=512,
                               write_page_checksum=codec != "gzip")
                count += compare(reader, path, pq.read_table(path))
    return f"{count} rows of 20 files"


def parquet_encodings(reader, work):
    import pyarrow.parquet as pq
    table = table_of(3000, 2).drop_columns(["nothing", "messages", "nested", "struct", "map"])
    encodings = {"text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
                 "whole": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
                 "bytes": ["DELTA_BYTE_ARRAY"], "fixed": ["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"],
                 "i32": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
                 "few": ["DELTA_BINARY_PACKED"], "i64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
                 "i8": ["DELTA_BINARY_PACKED"], "u64": ["DELTA_BINARY_PACKED"],
                 "f32": ["BYTE_STREAM_SPLIT"], "f64": ["BYTE_STREAM_SPLIT"], "flag": ["RLE", "PLAIN"]}
    count = files = 0
    for column, kinds in encodings.items():
        for kind in kinds:
            for version in ("1.0", "2.0"):
                part = table.select([column])
                path = work / f"encoding-{column}-{kind}-{version}.parquet"
                pq.write_table(part, path, use_dictionary=False, column_encoding={column: kind},
                               data_page_version=version, data_page_size=700)
                count += compare(reader, path, pq.read_table(path))
                files += 1
    return f"{count} rows of {files} files"


def parquet_polars(reader, work):
    import polars as pl
    import pyarrow.parquet as pq
    count = 0
    table = table_of(700, 3).drop_columns(["map", "nothing", "large_money", "fixed"])
    frame = pl.from_arrow(table)
    for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4"):
        path = work / f"polars-{codec}.parquet"
        frame.write_parquet(path, compression=codec, row_group_size=200, data_page_size=2000)
        count += compare(reader, path, pq.read_table(path))
    return f"{count} rows of 5 files"


def parquet_duckdb(reader, work):
    import duckdb
    table = table_of(4000, 4).drop_columns(["nothing", "large_money", "fixed", "bytes"])
    db = duckdb.connect()
    db.register("rows", table)
    count = files = 0
    for version in ("v1", "v2"):
        for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4_raw"):
            path = work / f"duckdb-{version}-{codec}.parquet"
            db.execute(f"copy rows to '{path}' (format parquet, compression {codec}, "
                       f"parquet_version {version}, row_group_size 2048)")
            # Pages of nothing but nulls, as DuckDB writes them, pyarrow 26 does not read.
            theirs = db.sql(f"select * from '{path}'").to_arrow_table()
            count += compare(reader, path, theirs)
            files += 1
    return f"{count} rows of {files} files"


def parquet_brotli(reader, work):
    import pyarrow.parquet as pq
    path = work / "brotli.parquet"
    pq.write_table(table_of(5, 5), path, compression="brotli")
    rows, problem = read_rows(reader, path)
    expect(rows is None and "Brotli" in problem, f"not refused by name: {problem}")
    return problem.strip()


def arrow(reader, work):
    import pyarrow as pa
    table = table_of(400, 6)
    table = table.append_column("words", pa.array(texts(400, 7)).dictionary_encode())
    table = table.append_column("view", pa.array(texts(400, 8), pa.string_view()))
    table = table.append_column("half", pa.array([None, 0.5] * 200, pa.float16()))
    table = table.append_column("pair", pa.array([[1, 2], None] * 200, pa.list_(pa.int8(), 2)))
    table = table.append_column("ns", pa.array([10**18, None] * 200, pa.timestamp("ns")))
    table = table.append_column("large", pa.array([["a"], []] * 200, pa.large_list(pa.string())))
    table = table.append_column("list_view", pa.array([["a"], []] * 200, pa.list_view(pa.string())))
    count = files = 0
    for codec in (None, "lz4", "zstd"):
        for kind in ("stream", "file"):
            path = work / f"{kind}-{codec}.arrow"
            make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
            with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as out:
                out.write_table(table, max_chunksize=77)
            count += compare(reader, path, table.drop_columns(["ns"]).append_column(
                "ns", table["ns"].cast(pa.timestamp("us"))))
            files += 1
    # Dictionaries that grow.
    path = work / "delta.arrow"
    schema = pa.schema([("words", pa.dictionary(pa.int16(), pa.string()))])
    batches = [pa.DictionaryArray.from_arrays(pa.array([0, len(words) - 1], pa.int16()), words)
               for words in (["a"], ["a", "b"], ["a", "b", "c"])]
    with pa.ipc.new_stream(path, schema, options=pa.ipc.IpcWriteOptions(
            emit_dictionary_deltas=True)) as out:
        for batch in batches:
            out.write_batch(pa.record_batch([batch], schema=schema))
    count += compare(reader, path, pa.table({"words": [w for b in batches for w in b.to_pylist()]}))
    return f"{count} rows of {files + 1} files"


def compressed(path, content):
    """The same content in each compression: paths."""
    import lz4.frame
    import zstandard
    half = len(content) // 2
    made = {"": content, ".gz": gzip.compress(content[:half]) + gzip.compress(content[half:]),
            ".xz": lzma.compress(content), ".bz2": bz2.compress(content[:half]) + bz2.compress(content[half:]),
            ".zst": zstandard.compress(content[:half]) + zstandard.compress(content[half:]),
            ".lz4": lz4.frame.compress(content)}
    for ending, data in made.items():
        file = path.with_name(path.name + ending)
        file.write_bytes(data)
        yield file


def tables_of_text(reader, work):
    rows = [{"a": str(index), "text": text or "", "b,\"c": (text or "")[::-1]}
            for index, text in enumerate(texts(2000, 9))]
    for row in rows:
        for key in row:  # Python's reader cannot tell these from a line end within quotes
            row[key] = row[key].replace("\x01", "")
    count = files = 0
    for name, dialect in (("a.csv", "excel"), ("unix.csv", "unix"), ("b.tsv", "excel-tab")):
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, list(rows[0]), dialect=dialect)
        writer.writeheader()
        writer.writerows(rows)
        for path in compressed(work / name, b"\xef\xbb\xbf" + out.getvalue().encode()):
            got, problem = read_rows(reader, path)
            expect(got == rows, f"{path.name}: other rows {problem}")
            count += len(rows)
            files += 1
    for path in compressed(work / "rows.json", json.dumps(rows, indent=1).encode()):
        got, problem = read_rows(reader, path)
        expect(got == rows, f"{path.name}: other rows {problem}")
        count += len(rows)
        files += 1
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for path in compressed(work / "rows.jsonl", lines.encode()):
        got, problem = read_rows(reader, path)
        expect(got == rows, f"{path.name}: other rows {problem}")
        count += len(rows)
        files += 1
    return f"{count} rows of {files} files"


def tars(reader, work):
    samples = [(f"folder/{index:05}", text or "", {"n": index}) for index, text in enumerate(texts(300, 10))]
    count = 0
    for kind, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT),
                       ("ustar", tarfile.USTAR_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as tar:
            for index, (key, text, extra) in enumerate(samples):
                if form != tarfile.USTAR_FORMAT and index % 7 == 0:
                    key += "-long" * 40
                for ending, content in (("txt", text.encode()), ("json", json.dumps(extra).encode()),
                                        ("jpg", b"\xff\xd8 no text")):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        for path in compressed(work / f"{kind}.tar", out.getvalue()):
            rows, problem = read_rows(reader, path)
            expected = [{**extra, "txt": text, "text": text} for _, text, extra in samples]
            expect(rows == expected, f"{path.name}: other samples {problem} {rows and rows[:2]}")
            count += len(rows)
    return f"{count} samples of 18 files"


def damage(reader, work):
    import pyarrow as pa
    import pyarrow.parquet as pq
    draw = random.Random(11)
    table = table_of(60, 12)
    good = work / "good.parquet"
    pq.write_table(table, good, compression="zstd", write_page_checksum=True, row_group_size=20)
    stream = work / "good.arrow"
    with pa.ipc.new_stream(stream, table.schema) as out:
        out.write_table(table, max_chunksize=10)
    text = work / "good.jsonl.gz"
    text.write_bytes(gzip.compress(b"".join(b'{"text": "%d"}\n' % n for n in range(2000))))
    tried = refused = 0
    for path in (good, stream, text):
        content = path.read_bytes()
        rows = len(read_rows(reader, path)[0])
        for number in range(150):
            broken = work / f"broken-{path.name}"
            at = draw.randrange(len(content))
            if number % 2:
                broken.write_bytes(content[:at])
            else:
                broken.write_bytes(content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))])
                                   + content[at + 1:])
            done = subprocess.run([reader, "--json", broken], capture_output=True, timeout=120)
            expect(done.returncode in (0, 1), f"{broken.name} at byte {at}: exit code {done.returncode}")
            # Cut off, a file is refused, or, of a stream between two messages, has rows fewer.
            if number % 2 and path != stream:
                expect(done.returncode == 1, f"{broken.name} cut at byte {at} of {len(content)} was read")
            if done.returncode == 1:
                expect(b"broken-good" in done.stderr, f"no name in {done.stderr}")
            tried += 1
            refused += done.returncode
    return f"{tried} damaged files of {rows} rows and others, {refused} refused, no crash"


def main():
    atoll, work = arguments("columns")
    checks = Checks("columns")
    checks.require("pyarrow")
    reader = reader_of(atoll)
    checks.run("Parquet of pyarrow", parquet_pyarrow, reader, work)
    checks.run("each encoding of Parquet", parquet_encodings, reader, work)
    checks.run("Parquet of polars", parquet_polars, reader, work)
    checks.run("Parquet of DuckDB", parquet_duckdb, reader, work)
    checks.run("Brotli is refused by name", parquet_brotli, reader, work)
    checks.run("Arrow streams and files", arrow, reader, work)
    checks.run("CSV, JSON and JSONL, compressed", tables_of_text, reader, work)
    checks.run("tars of samples", tars, reader, work)
    checks.run("damaged files", damage, reader, work)
    checks.finish()


if __name__ == "__main__":
    main()
