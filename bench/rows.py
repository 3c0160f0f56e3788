"""Reading rows here and with pyarrow, on one core, in turns: medians.

    python bench/rows.py build/release/bench/rows_bench [MEGABYTES]

columns  all values of a Parquet file decoded: ParquetFile.read(use_threads=False) beside count_parquet_values()
rows     the rows of a file: JSON objects here, to_pylist() of batches there
"""

import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

ROUNDS = 7


def words(count, seed):
    draw = random.Random(seed)
    known = ["".join(draw.choices("etaoinshrdlucmfwypvbgk", k=draw.randrange(2, 11))) for _ in range(20000)]
    return lambda: " ".join(draw.choices(known, k=count()))


def texts(megabytes):
    """Rows of prose, of 100 to 5000 bytes each."""
    draw = random.Random(1)
    make = words(lambda: draw.randrange(15, 750), 2)
    rows, size = [], 0
    while size < megabytes << 20:
        rows.append(make())
        size += len(rows[-1])
    return pa.table({"text": rows, "id": pa.array(range(len(rows)), pa.int64()),
                     "score": [draw.random() for _ in rows]})


def chats(megabytes):
    """Conversations of a few turns."""
    draw = random.Random(3)
    make = words(lambda: draw.randrange(5, 100), 4)
    rows, size = [], 0
    while size < megabytes << 20:
        rows.append([{"role": ("user", "assistant")[turn % 2], "content": make()}
                     for turn in range(draw.randrange(2, 8))])
        size += sum(len(message["content"]) for message in rows[-1])
    return pa.table({"messages": rows})


def ours(bench, path, what):
    """Seconds, as the program takes them."""
    done = subprocess.run([bench, path], capture_output=True, check=True, text=True).stdout.split()
    return float(done[done.index(what) + 1])


def theirs_columns(path):
    begin = time.perf_counter()
    pq.ParquetFile(path).read(use_threads=False)
    return time.perf_counter() - begin


def batches(path):
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).iter_batches(batch_size=1000, use_threads=False)
    if path.suffix == ".arrow":
        return pa.ipc.open_stream(pa.memory_map(str(path)))
    if path.suffix == ".csv":
        return pa.csv.open_csv(path, read_options=pa.csv.ReadOptions(use_threads=False),
                               parse_options=pa.csv.ParseOptions(newlines_in_values=True))
    return pa.json.read_json(path, read_options=pa.json.ReadOptions(use_threads=False)).to_batches(1000)


def theirs_rows(path):
    begin = time.perf_counter()
    for batch in batches(path):
        batch.to_pylist()
    return time.perf_counter() - begin


def compare(name, size, first, second):
    """Medians of both, in turns, and how much faster the first is."""
    pairs = [(first(), second()) for _ in range(ROUNDS)]
    mine, other = (statistics.median(column) for column in zip(*pairs))
    print(f"| {name} | {size / mine / 1e6:.0f} | {size / other / 1e6:.0f} | {other / mine:.2f} |", flush=True)


def main():
    bench = pathlib.Path(sys.argv[1]).resolve()
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # of this program and those that it starts
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    print("| file | atoll MB/s | pyarrow MB/s | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for kind, table in (("text", texts(megabytes)), ("chat", chats(megabytes))):
            for codec in ("none", "snappy", "zstd", "lz4", "gzip"):
                path = work / f"{kind}-{codec}.parquet"
                pq.write_table(table, path, compression=codec)
                if kind == "text":
                    compare(f"{path.name}, columns", table.nbytes, lambda: ours(bench, path, "columns_s"),
                            lambda: theirs_columns(path))
                if codec in ("none", "zstd"):
                    compare(f"{path.name}, rows", table.nbytes, lambda: ours(bench, path, "rows_s"),
                            lambda: theirs_rows(path))
            path = work / f"{kind}.arrow"
            with pa.ipc.new_stream(path, table.schema) as out:
                out.write_table(table, max_chunksize=1000)
            compare(f"{path.name}, rows", table.nbytes, lambda: ours(bench, path, "rows_s"),
                    lambda: theirs_rows(path))
            if kind == "text":
                path = work / "text.csv"
                pa.csv.write_csv(table, path)
                compare("text.csv, rows", table.nbytes, lambda: ours(bench, path, "rows_s"),
                        lambda: theirs_rows(path))


if __name__ == "__main__":
    main()
