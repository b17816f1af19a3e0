#!/usr/bin/env python3
"""parquet_matrix.py - Parquet files of every writer, codec, encoding, page version and shape, read by hone and compared.

    python3 -m venv V && V/bin/pip install pyarrow pandas polars duckdb
    V/bin/python bench/peers/parquet_matrix.py build/hone [--keep DIR] [--only arrow|pandas|polars|duckdb|writer]
    V/bin/python bench/peers/parquet_matrix.py build/hone --fixtures tests/data/parquet      (writes the small committed ones)

What a file holds is taken from pyarrow's own reading of it (to_pylist), brought to the JSON forms that src/file/parquet.h
names; `hone data show --json` must print the same.  Exit code 1 when any differs.
"""
import base64, datetime as dt, decimal, itertools, json, os, random, struct, subprocess, sys, tempfile, uuid
import duckdb, numpy as np, pandas as pd, polars as pl, pyarrow as pa, pyarrow.parquet as pq

hone = sys.argv[1]
keep = sys.argv[sys.argv.index("--keep") + 1] if "--keep" in sys.argv else None
folder = keep or tempfile.mkdtemp()
os.makedirs(folder, exist_ok=True)
rng = random.Random(7)
counts = {"equal": 0, "different": 0, "skipped": 0}


def stamp_text(value, unit, tz):
    """An integer in `unit` since 1970 as hone writes it."""
    digits = {"s": 3, "ms": 3, "us": 6, "ns": 9}[unit]
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds, rest = divmod(value, per)
    day, second = divmod(seconds, 86400)
    date = (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()
    text = f"{date}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    if rest:
        text += f".{rest:0{digits}}"
    return text + ("Z" if tz else "")


def plain(v, t):
    """A value of Arrow type t in the form of parquet.h."""
    if v is None:
        return None
    T = pa.types
    if T.is_dictionary(t):
        return plain(v, t.value_type)
    if T.is_struct(t):
        return {f.name: plain(v[f.name], f.type) for f in t}
    if T.is_map(t):
        if T.is_string(t.key_type) or T.is_large_string(t.key_type):
            return {k: plain(x, t.item_type) for k, x in v}
        return [{"key": plain(k, t.key_type), "value": plain(x, t.item_type)} for k, x in v]
    if T.is_list(t) or T.is_large_list(t) or T.is_fixed_size_list(t) or T.is_list_view(t):
        return [plain(x, t.value_type) for x in v]
    if T.is_binary(t) or T.is_large_binary(t) or T.is_fixed_size_binary(t) or T.is_binary_view(t):
        return {"base64": base64.b64encode(v).decode()}
    if T.is_decimal(t):
        return format(v, "f")
    if T.is_date(t):
        return v.isoformat()
    if T.is_time(t):
        text = v.strftime("%H:%M:%S")
        if v.microsecond:
            text += f".{v.microsecond // 1000:03}" if t.unit == "ms" else f".{v.microsecond:06}" + ("000" if t.unit == "ns" else "")
        return text
    if isinstance(v, uuid.UUID):
        return str(v)
    if T.is_floating(t) or isinstance(v, (float, np.floating)):
        v = float(v)
        return v if v == v and abs(v) != float("inf") else None
    return v


def expected(path, table=None):
    table = table or pq.read_table(path)
    columns = []
    for field, column in zip(table.schema, table.columns):
        t = field.type
        if pa.types.is_timestamp(t):
            ints = column.cast(pa.int64()).to_pylist()
            columns.append([None if x is None else stamp_text(x, t.unit, t.tz) for x in ints])
        elif isinstance(t, pa.ExtensionType):
            columns.append([plain(x, t) for x in column.to_pylist()])
        else:
            columns.append([plain(x, t) for x in column.to_pylist()])
    names = table.schema.names
    return [dict(zip(names, row)) for row in zip(*columns)] if names else [{}] * table.num_rows


def same(a, b):
    if isinstance(a, float) and isinstance(b, (int, float)) or isinstance(b, float) and isinstance(a, (int, float)):
        return float(a) == float(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def check(name, path, want=None):
    if want is None:
        want = expected(path)
    if "--fixtures" in sys.argv:
        with open(path.replace(".parquet", ".jsonl"), "w") as f:
            f.writelines(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in want)
    run = subprocess.run([hone, "data", "show", "--json", "--n", "0", path], capture_output=True)
    problem = None
    if run.returncode:
        problem = run.stderr.decode().strip()
    else:
        got = [json.loads(line) for line in run.stdout.decode().split("\n") if line]
        if len(got) != len(want):
            problem = f"{len(got)} rows, {len(want)} wanted"
        for i, (a, b) in enumerate(zip(got, want)):
            if not same(a, b):
                problem = f"row {i}: got {json.dumps(a)[:300]} want {json.dumps(b)[:300]}"
                break
    counts["different" if problem else "equal"] += 1
    if problem:
        print(f"DIFFERENT {name}: {problem}")
    if not keep and not problem:
        os.unlink(path)


def words(n):
    return " ".join(rng.choice(["alpha", "βeta", "γ", "zeta", "\n", "\"q\"", "東京", "🙂", "x" * 30]) for _ in range(n))


def maybe(v, p=0.2):
    return None if rng.random() < p else v


def chat(n):
    rows = []
    for i in range(n):
        rows.append({
            "data_source": maybe(rng.choice(["openai/gsm8k", "lighteval/MATH"])),
            "prompt": maybe([maybe({"role": rng.choice(["system", "user"]), "content": maybe(words(rng.randrange(20)))}, .1)
                             for _ in range(rng.randrange(4))]),
            "reward_model": maybe({"style": "rule", "ground_truth": maybe(str(rng.randrange(10**6)))}),
            "extra_info": {"index": i, "score": maybe(rng.random()), "tags": maybe([maybe(words(1)) for _ in range(rng.randrange(3))]),
                           "deep": maybe([maybe([maybe([maybe(rng.randrange(99)) for _ in range(rng.randrange(3))])
                                                 for _ in range(rng.randrange(3))]) for _ in range(rng.randrange(3))])},
            "required": words(2),
            "ok": maybe(rng.random() < .5),
        })
    return rows


message = pa.struct([("role", pa.string()), ("content", pa.string())])
chat_schema = pa.schema([
    ("data_source", pa.string()), ("prompt", pa.list_(message)), ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
    pa.field("extra_info", pa.struct([("index", pa.int64()), ("score", pa.float64()), ("tags", pa.list_(pa.string())),
                                      ("deep", pa.list_(pa.list_(pa.list_(pa.int32()))))]), nullable=False),
    pa.field("required", pa.string(), nullable=False), ("ok", pa.bool_())])


def scalars(n):
    def column(f, t, **k):
        return pa.array([maybe(f()) for _ in range(n)], t, **k)
    r = rng.randrange
    return pa.table({
        "b": column(lambda: r(2) == 1, pa.bool_()),
        **{f"i{w}": column(lambda w=w: r(-2**(w - 1), 2**(w - 1)), getattr(pa, f"int{w}")()) for w in (8, 16, 32, 64)},
        **{f"u{w}": column(lambda w=w: r(2**min(w, 63)), getattr(pa, f"uint{w}")()) for w in (8, 16, 32, 64)},
        "f16": pa.array([maybe(np.float16(rng.gauss(0, 9))) for _ in range(n)], pa.float16()),
        "f32": column(lambda: rng.gauss(0, 9), pa.float32()), "f64": column(lambda: rng.gauss(0, 9), pa.float64()),
        "nan": column(lambda: rng.choice([float("nan"), float("inf"), 0.0, -0.0, 5e-324]), pa.float64()),
        "s": column(lambda: words(r(6)), pa.string()), "ls": column(lambda: words(r(6)), pa.large_string()),
        "bin": column(lambda: rng.randbytes(r(40)), pa.binary()), "fix": column(lambda: rng.randbytes(7), pa.binary(7)),
        "dec9": column(lambda: decimal.Decimal(r(-10**9, 10**9)).scaleb(-2), pa.decimal128(9, 2)),
        "dec38": column(lambda: decimal.Decimal(r(-10**28, 10**28)).scaleb(-10), pa.decimal128(38, 10)),
        "dec60": column(lambda: decimal.Decimal(r(-10**28, 10**28)).scaleb(-5), pa.decimal256(60, 5)),
        "date": column(lambda: dt.date(1970, 1, 1) + dt.timedelta(days=r(-200000, 200000)), pa.date32()),
        "t_ms": column(lambda: dt.time(r(24), r(60), r(60), r(1000) * 1000), pa.time32("ms")),
        "t_us": column(lambda: dt.time(r(24), r(60), r(60), r(10**6)), pa.time64("us")),
        **{f"ts_{u}": column(lambda: r(-2**40, 2**40), pa.timestamp(u)) for u in ("ms", "us", "ns")},
        "ts_utc": column(lambda: r(-2**50, 2**50), pa.timestamp("us", tz="UTC")),
        "dict": pa.array([maybe(rng.choice(["red", "green", "blue"])) for _ in range(n)], pa.string()).dictionary_encode(),
        "none": pa.nulls(n),
        "map": pa.array([maybe([(words(1) + str(k), maybe(r(9))) for k in range(r(4))]) for _ in range(n)], pa.map_(pa.string(), pa.int32())),
        "imap": pa.array([maybe([(k, maybe(words(1))) for k in range(r(4))]) for _ in range(n)], pa.map_(pa.int64(), pa.string())),
        "fixlist": pa.array([maybe([r(9), r(9), r(9)]) for _ in range(n)], pa.list_(pa.int16(), 3)),
        "bools": pa.array([maybe([maybe(r(2) == 1) for _ in range(r(12))]) for _ in range(n)], pa.list_(pa.bool_())),
    })


def path(name):
    return os.path.join(folder, name.replace("/", "_") + ".parquet")


def try_write(name, write, table=None):
    p = path(name)
    try:
        write(p)
    except Exception as e:  # a writer that cannot make this combination
        counts["skipped"] += 1
        print(f"skipped {name}: {type(e).__name__} {str(e)[:100]}")
        return
    check(name, p, expected(p, table) if table else None)


def arrow_matrix():
    codecs = ["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"]
    for n, codec, version, dictionary in itertools.product([0, 1, 300, 4000], codecs, ["1.0", "2.0"], [True, False]):
        if n == 4000 and codec in ("GZIP", "BROTLI") and dictionary:
            continue
        t = pa.Table.from_pylist(chat(n), schema=chat_schema)
        s = scalars(n)
        for kind, table in (("chat", t), ("scalars", s)):
            try_write(f"arrow {kind} {n} {codec} page{version} dict={dictionary}",
                      lambda p: pq.write_table(table, p, compression=codec, data_page_version=version, use_dictionary=dictionary,
                                               row_group_size=1500, data_page_size=rng.choice([200, 5000, 1 << 20]),
                                               dictionary_pagesize_limit=rng.choice([300, 1 << 20]), write_page_checksum=rng.random() < .5,
                                               store_schema=rng.random() < .5))
    ints, strings = ["i32", "i64", "date", "ts_us", "u32"], ["s", "bin"]
    for encoding, columns in {"DELTA_BINARY_PACKED": ints, "DELTA_LENGTH_BYTE_ARRAY": strings, "DELTA_BYTE_ARRAY": strings + ["fix", "dec38"],
                              "BYTE_STREAM_SPLIT": ["f32", "f64", "i32", "i64", "fix", "f16"], "RLE": ["b"], "PLAIN": ints + strings}.items():
        for n, version, codec in itertools.product([0, 1, 2, 33, 129, 1000, 5000], ["1.0", "2.0"], ["NONE", "ZSTD"]):
            table = scalars(n).select(columns)
            try_write(f"arrow {encoding} {n} {version} {codec}",
                      lambda p: pq.write_table(table, p, compression=codec, data_page_version=version, use_dictionary=False,
                                               column_encoding={c: encoding for c in columns}, data_page_size=rng.choice([100, 1 << 20])))
    wild = pa.table({"i32": pa.array([2**31 - 1, -2**31, 0, -1, 5] * 50, pa.int32()), "i64": pa.array([2**63 - 1, -2**63, 0, -1, 5] * 50, pa.int64())})
    try_write("arrow delta wraps", lambda p: pq.write_table(wild, p, use_dictionary=False, column_encoding="DELTA_BINARY_PACKED"))
    t = pa.Table.from_pylist(chat(500), schema=chat_schema)
    try_write("arrow legacy lists", lambda p: pq.write_table(t, p, use_compliant_nested_type=False))
    try_write("arrow int96", lambda p: pq.write_table(scalars(200).select(["ts_ns", "ts_us"]), p, use_deprecated_int96_timestamps=True))
    try_write("arrow version 1.0", lambda p: pq.write_table(t, p, version="1.0"))
    try_write("arrow decimal as integer", lambda p: pq.write_table(scalars(100).select(["dec9"]), p, store_decimal_as_integer=True))
    try_write("arrow no columns", lambda p: pq.write_table(pa.table({}), p))
    big = pa.table({"x": pa.array(["same"] * 200000), "n": pa.array([None] * 200000, pa.int32()), "w": pa.array([words(3) for _ in range(2000)] * 100)})
    try_write("arrow long runs", lambda p: pq.write_table(big, p))
    sparse = pa.table({"a": pa.array([[{"k": [("x", 1)]}] if i % 7 == 0 else None if i % 3 else [] for i in range(1000)],
                                     pa.list_(pa.struct([("k", pa.map_(pa.string(), pa.int64()))])))})
    try_write("arrow list of struct of map", lambda p: pq.write_table(sparse, p))


def pandas_matrix():
    df = pd.DataFrame(chat(400))
    for codec in [None, "snappy", "gzip", "zstd", "lz4", "brotli"]:
        try_write(f"pandas {codec}", lambda p: df.to_parquet(p, compression=codec, index=False))
    frame = pd.DataFrame({"t": pd.date_range("1999-12-31", periods=50, freq="h"), "c": pd.Categorical(list("abcde") * 10), "x": np.arange(50.) / 3})
    try_write("pandas dates", lambda p: frame.to_parquet(p))
    try_write("pandas index", lambda p: frame.set_index("c").to_parquet(p))
    try_write("pandas empty", lambda p: frame[:0].to_parquet(p))


def polars_matrix():
    df = pl.from_arrow(pa.Table.from_pylist(chat(3000), schema=chat_schema))
    s = pl.from_arrow(scalars(1500).drop_columns(["none", "imap", "map", "f16", "dec60", "fix"]))
    for codec, version in itertools.product(["uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"], [None, 700]):
        try_write(f"polars chat {codec} {version}", lambda p: df.write_parquet(p, compression=codec, row_group_size=version))
        try_write(f"polars scalars {codec} {version}", lambda p: s.write_parquet(p, compression=codec, row_group_size=version))
    try_write("polars small pages", lambda p: df.write_parquet(p, data_page_size=300))
    try_write("polars empty", lambda p: df[:0].write_parquet(p))


def duckdb_matrix():
    db = duckdb.connect()
    t = pa.Table.from_pylist(chat(3000), schema=chat_schema)
    s = scalars(2000).drop_columns(["none", "f16", "dec60", "t_ms", "dict", "imap"])
    db.register("t", t)
    db.register("s", s)
    for table, codec, version in itertools.product(["t", "s"], ["uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4_raw", "brotli"], ["V1", "V2"]):
        try_write(f"duckdb {table} {codec} {version}",
                  lambda p: db.execute(f"copy {table} to '{p}' (format parquet, compression {codec}, parquet_version {version}, row_group_size 2048)"),
                  {"t": t, "s": s}[table])  # what was written, for pyarrow cannot read all that DuckDB 2 writes
    try_write("duckdb numbers", lambda p: db.execute(
        f"copy (select i, i::double / 7 as d, 'row ' || i as s, i::utinyint % 50 as t from (select i % 200 as i from range(3000) r(i))) to '{p}' "
        "(format parquet, parquet_version V2)"))


def writer_matrix():
    """hone writes, the others read."""
    for n, codec in itertools.product([1, 7, 3000, 70000], ["zstd", "snappy", "none"]):
        rows = chat(min(n, 3000)) * (n // min(n, 3000)) + chat(n % 3000 if n > 3000 else 0)
        for row in rows:
            if rng.random() < .1:
                row.pop("ok", None)
        lines, out = path("w")[:-8] + ".jsonl", path(f"writer {n} {codec}")
        with open(lines, "w") as f:
            f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
        subprocess.run([hone, "data", "copy", "--in", lines, "--out", out, "--codec", codec], check=True, capture_output=True)

        def fill(v, t):
            if v is None:
                return None
            if pa.types.is_struct(t):
                return {f.name: fill(v.get(f.name), f.type) for f in t}
            return [fill(x, t.value_type) for x in v] if pa.types.is_list(t) else v
        table = pq.read_table(out)
        want = [{f.name: fill(r.get(f.name), f.type) for f in table.schema} for r in rows]
        readers = {"pyarrow": lambda: table.to_pylist(), "polars": lambda: pl.read_parquet(out).to_dicts(),
                   "duckdb": lambda: duckdb.sql(f"select * from '{out}'").to_arrow_table().to_pylist(),
                   "pandas": lambda: pa.Table.from_pandas(pd.read_parquet(out), schema=table.schema, preserve_index=False).to_pylist()}
        for name, read in readers.items():
            equal = read() == want
            counts["equal" if equal else "different"] += 1
            if not equal:
                print(f"DIFFERENT writer {n} {codec} read by {name}")
        check(f"writer {n} {codec}", out)


def fixtures(where):
    """Small files for tests/file/test_parquet.c, each with the JSON lines that hone must print."""
    global folder, keep
    folder = keep = where
    table = lambda n: pa.Table.from_pylist(chat(n), schema=chat_schema)
    for codec in ["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"]:
        try_write(f"chat_{codec.lower()}", lambda p: pq.write_table(table(6), p, compression=codec, data_page_version="2.0" if codec in ("GZIP", "LZ4") else "1.0"))
    try_write("groups_v2", lambda p: pq.write_table(table(9), p, row_group_size=4, data_page_version="2.0", data_page_size=60, write_page_checksum=True))
    try_write("legacy_lists", lambda p: pq.write_table(table(5), p, use_compliant_nested_type=False, version="1.0"))
    try_write("empty", lambda p: pq.write_table(table(0), p))
    s = scalars(9)
    names = s.column_names
    for i in range(0, len(names), 9):
        try_write(f"scalars_{i // 9}", lambda p: pq.write_table(s.select(names[i:i + 9]), p, compression="NONE", store_schema=False))
    for encoding, columns in {"DELTA_BINARY_PACKED": ["i32", "i64"], "DELTA_LENGTH_BYTE_ARRAY": ["s", "bin"], "DELTA_BYTE_ARRAY": ["s", "fix"],
                              "BYTE_STREAM_SPLIT": ["f32", "f64", "i32", "fix"], "RLE": ["b"]}.items():
        t = scalars(40).select(columns)
        try_write(encoding.lower(), lambda p: pq.write_table(t, p, compression="ZSTD", use_dictionary=False, store_schema=False,
                                                             column_encoding={c: encoding for c in columns}))
    try_write("int96", lambda p: pq.write_table(scalars(8).select(["ts_ns"]), p, use_deprecated_int96_timestamps=True, store_schema=False))
    try_write("pandas", lambda p: pd.DataFrame(chat(5)).to_parquet(p, index=False))
    try_write("polars", lambda p: pl.from_arrow(table(5)).write_parquet(p, statistics=False))
    db = duckdb.connect()
    t = table(6)
    db.register("t", t)
    try_write("duckdb_v1", lambda p: db.execute(f"copy t to '{p}' (format parquet, compression snappy, parquet_version V1)"))
    try_write("duckdb_v2", lambda p: db.execute(f"copy t to '{p}' (format parquet, compression zstd, parquet_version V2)"), t)


if "--fixtures" in sys.argv:
    fixtures(sys.argv[sys.argv.index("--fixtures") + 1])
    print(counts)
    sys.exit(counts["different"] > 0)

only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
for part in (arrow_matrix, pandas_matrix, polars_matrix, duckdb_matrix, writer_matrix):
    if only not in part.__name__:
        continue
    before = dict(counts)
    part()
    print(part.__name__, {k: counts[k] - before[k] for k in counts}, flush=True)
print("pyarrow", pa.__version__, "pandas", pd.__version__, "polars", pl.__version__, "duckdb", duckdb.__version__, counts)
sys.exit(counts["different"] > 0)
