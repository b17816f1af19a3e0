#!/usr/bin/env python3
"""parquet.py - pyarrow's speed beside bench_parquet's:  parquet.py build/bench/bench_parquet [QUESTIONS.jsonl]

Writes chat data (GSM8K's questions in verl's schema when given, else made-up ones), about 60,000 rows, by codec and with
and without dictionaries; reads it on one thread by pyarrow (to Arrow columns, and on to Python rows) and by hone (to rows).
"""
import json, os, random, subprocess, sys, tempfile, time
import pyarrow as pa, pyarrow.parquet as pq

pa.set_cpu_count(1)
pa.set_io_thread_count(1)
bench = sys.argv[1]
if len(sys.argv) > 2:
    raw = [json.loads(line) for line in open(sys.argv[2])]
    rows = [(r["question"], r["answer"]) for r in raw]
else:
    rng = random.Random(1)
    word = ["the", "sum", "of", "apples", "is", "then", "twice", "42", "how", "many"]
    rows = [(" ".join(rng.choices(word, k=60)), " ".join(rng.choices(word, k=80))) for _ in range(7500)]
rows = (rows * (60000 // len(rows) + 1))[:60000]
table = pa.Table.from_pylist([{
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "system", "content": "You are a careful solver."}, {"role": "user", "content": f"{q} ({i})"}],
    "ability": "math", "reward_model": {"style": "rule", "ground_truth": a.split()[-1]},
    "extra_info": {"split": "train", "index": i, "answer": f"{a} ({i})", "question": q}} for i, (q, a) in enumerate(rows)])


def best(f, rounds=5):
    times = []
    for _ in range(rounds):
        t = time.process_time()
        f()
        times.append(time.process_time() - t)
    return min(times[1:])


folder = tempfile.mkdtemp()
print(f"pyarrow {pa.__version__}, one thread; processor seconds to read {len(rows)} rows, best of 4")
print(f"{'file':28} {'MB':>6} {'pyarrow columns':>16} {'pyarrow rows':>13} {'hone rows':>10} {'hone/columns':>13}")
for codec in ("NONE", "SNAPPY", "ZSTD", "GZIP"):
    for dictionary in (True, False):
        path = os.path.join(folder, f"{codec}-{'dict' if dictionary else 'plain'}.parquet")
        pq.write_table(table, path, compression=codec, use_dictionary=dictionary)
        columns = best(lambda: pq.ParquetFile(path, memory_map=True).read(use_threads=False))
        objects = best(lambda: pq.ParquetFile(path).read(use_threads=False).to_pylist(), 2)
        out = subprocess.run([bench, path, "1"], capture_output=True, text=True, check=True).stdout
        ours = float(out.split(" MB: ")[1].split(" s")[0])
        print(f"{os.path.basename(path):28} {os.path.getsize(path) / 1e6:6.1f} {columns:16.4f} {objects:13.3f} {ours:10.4f} {columns / ours:12.2f}x", flush=True)
        os.unlink(path)
