#!/usr/bin/env python3
"""tokenizing.py MODEL [FILE.jsonl ...] - hone's tokenizer beside Hugging Face tokenizers, one thread and two.

    python3 -m venv /tmp/venv-bench && /tmp/venv-bench/bin/pip install tokenizers
    /tmp/venv-bench/bin/python bench/peers/tokenizing.py MODEL gsm8k/train.jsonl

MODEL is a folder with a tokenizer.json.  Every string in a line of a FILE is a text.  A second corpus of code, CJK and emoji
is made here from a seed.  The library is measured where it is quickest (encode_batch_fast, which makes no offsets, with
its parallelism off or on); the number of tokens is compared too.  One thread is measured in processor time, two by the
clock."""
import json, os, random, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def mixed(path):
    """About 2 MB: Python's own sources, Chinese, Japanese and Korean with a natural skew, and emoji."""
    r = random.Random(1)
    code = []
    for f in ("argparse.py", "typing.py", "inspect.py", "tarfile.py", "subprocess.py", "ast.py", "enum.py"):
        lines = open(os.path.join(os.path.dirname(os.__file__), f), encoding="utf-8").read().split("\n")
        code += ["\n".join(lines[i:i + 40]) for i in range(0, len(lines), 40)]

    def skewed(chars):
        return chars[min(len(chars) - 1, int(r.paretovariate(0.6)) - 1)]
    han = [chr(c) for c in range(0x4E00, 0x9FA5)]
    kana = [chr(c) for c in list(range(0x3041, 0x3097)) + list(range(0x30A1, 0x30FB))]
    hangul = [chr(c) for c in range(0xAC00, 0xD7A4)]
    emoji = [chr(c) for c in range(0x1F300, 0x1F650)]
    for s in (han, kana, hangul, emoji):
        r.shuffle(s)
    out = list(code)
    for _ in range(len(code)):
        kind = r.randrange(4)
        pool = (han, kana, hangul, emoji)[kind]
        words = ["".join(skewed(pool) for _ in range(r.randrange(1, 8))) for _ in range(120)]
        out.append(("" if kind < 2 else " ").join(w + ("。" if r.random() < 0.1 else "\u200d\ufe0f" if kind == 3 and r.random() < 0.1 else "") for w in words))
    r.shuffle(out)
    with open(path, "w") as f:
        for t in out:
            f.write(json.dumps({"text": t}, ensure_ascii=False) + "\n")


def hf(model, texts, threads):
    code = """
import json, sys, time
from tokenizers import Tokenizer
t0 = time.process_time(); t = Tokenizer.from_file(sys.argv[1]); load = time.process_time() - t0
t.encode_special_tokens = True
texts = json.load(open(sys.argv[2])); best = 0; n = sum(len(x.encode()) for x in texts); cold = None
clock = time.process_time if sys.argv[3] == "1" else time.perf_counter
for _ in range(4):
    t0 = clock(); e = t.encode_batch_fast(texts, add_special_tokens=False); s = n / 1e6 / (clock() - t0)
    cold = cold or s; best = max(best, s)
print(json.dumps({"load_ms": load * 1e3, "cold": cold, "mb_s": best, "tokens": sum(len(x.ids) for x in e)}))
"""
    with open("/tmp/tokenize_texts.json", "w") as f:
        json.dump(texts, f)
    env = dict(os.environ, TOKENIZERS_PARALLELISM="true" if threads > 1 else "false", RAYON_NUM_THREADS=str(threads))
    out = subprocess.run([sys.executable, "-c", code, os.path.join(model, "tokenizer.json"), "/tmp/tokenize_texts.json", str(threads)], env=env, capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def main():
    model, files = sys.argv[1], sys.argv[2:]
    mixed("/tmp/tokenize_mixed.jsonl")
    for f in files + ["/tmp/tokenize_mixed.jsonl"]:
        texts = [v for line in open(f) for v in json.loads(line).values() if isinstance(v, str)]
        h = json.loads(subprocess.run([os.path.join(ROOT, "build/bench/bench_tokenize"), model, f, "2"], capture_output=True, text=True, check=True).stdout)
        one, two = hf(model, texts, 1), hf(model, texts, 2)
        same = "same number of tokens" if h["tokens"] == one["tokens"] else f"tokens differ: {h['tokens']} and {one['tokens']}"
        print(f"{os.path.basename(os.path.dirname(f)) or f}/{os.path.basename(f)}: {h['mb']:.2f} MB, {h['tokens']} tokens ({same})")
        for what, a, b in (("first pass, one thread", h["mb_s_cold"], one["cold"]), ("one thread", h["mb_s"], one["mb_s"]), ("two threads", h["mb_s_threads"], two["mb_s"])):
            print(f"  {what:24} hone {a:7.1f} MB/s   tokenizers {b:7.1f} MB/s   ratio {a / b:.1f}")
        print(f"  {'loading':24} hone {h['load_ms']:7.1f} ms     tokenizers {one['load_ms']:7.1f} ms     ratio {one['load_ms'] / h['load_ms']:.1f}")


main()
