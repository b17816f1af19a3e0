#!/usr/bin/env python3
"""decode.py [REPEATS] [BATCH ...] - generation with a 100 M-parameter Qwen2: hone beside llama.cpp, float32 weights and caches, two threads.

Decoding 64 tokens after a prompt of 128, at batch 1, 16 and 64, in turns.  llama.cpp's time is llama_decode alone, fed with
tokens that are known beforehand; hone's is the whole step, drawing and log-probs included.  Then what concerns hone by itself:
prefill against the rate of the matrix product alone and the multiply-add peak, 16 answers to one prompt, the scheduler's share of a step, and from the start of the
program to the first token.  That both compute the same model is checked by log-probs first."""
import ctypes, json, os, statistics, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side
side.two_threads()
import numpy as np
import llama_cpp as L
from gguf_f32 import convert

PROMPT, GEN, VOCAB = 128, 64, 32000
TMP = tempfile.gettempdir()


class Llama:
    """A context for that many sequences of so many tokens."""

    def __init__(self, model, seqs, length, flash):
        p = L.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = seqs * length, 2048, 512, seqs
        p.n_threads = p.n_threads_batch = side.THREADS
        p.type_k = p.type_v = 0   # float32
        p.no_perf = True
        if hasattr(p, "flash_attn_type"):
            p.flash_attn_type = 1 if flash else 0
        else:
            p.flash_attn = flash
        self.ctx = L.llama_init_from_model(model, p)
        if not self.ctx:
            sys.exit("llama.cpp gave no context")
        self.seqs = seqs
        self.batch = L.llama_batch_init(2048, 0, 1)

    def clear(self):
        L.llama_memory_clear(L.llama_get_memory(self.ctx), True)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (t, pos, s, want) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = t, pos, 1, s, want
        t0 = time.perf_counter()
        rc = L.llama_decode(self.ctx, b)
        L.llama_synchronize(self.ctx)
        if rc:
            sys.exit("llama_decode: %d" % rc)
        return time.perf_counter() - t0

    def prefill(self, n):
        self.clear()
        t = side.tokens(n, VOCAB)
        return sum(self.decode([(t[i], i, 0, i == n - 1) for i in range(k, min(k + 2048, n))]) for k in range(0, n, 2048))

    def rate(self):
        """Tokens a second of decode steps in which every sequence takes one token."""
        self.clear()
        t = side.tokens(self.seqs * (PROMPT + GEN), VOCAB)
        for s in range(self.seqs):
            self.decode([(t[s * PROMPT + i], i, s, i == PROMPT - 1) for i in range(PROMPT)])
        sec = sum(self.decode([(t[(s * GEN + k) % len(t)], PROMPT + k, s, True) for s in range(self.seqs)]) for k in range(GEN - 1))
        return self.seqs * (GEN - 1) / sec

    def logprobs(self, ids):
        self.clear()
        self.decode([(t, i, 0, True) for i, t in enumerate(ids)])
        x = np.stack([np.ctypeslib.as_array(L.llama_get_logits_ith(self.ctx, i), shape=(VOCAB,)) for i in range(len(ids))]).astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        lp = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        return [lp[i, ids[i + 1]] for i in range(len(ids) - 1)]

    def close(self):
        L.llama_batch_free(self.batch)
        L.llama_free(self.ctx)


def lines(name, rows):
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")
    return path


def same_model(model, folder):
    ids = side.tokens(200, VOCAB)
    out = os.path.join(TMP, "hone-bench-score.jsonl")
    subprocess.run([os.path.join(side.BUILD, "hone"), "score", folder, "--in", lines("hone-bench-in.jsonl", [{"tokens": ids}]), "--out", out], check=True)
    ours = json.loads(open(out).readline())["logprobs"]
    c = Llama(model, 1, 256, False)
    worst = max(abs(a - b) for a, b in zip(ours, c.logprobs(ids)))
    c.close()
    print("largest difference of 199 log-probs, hone and llama.cpp: %.2g" % worst)
    if not worst < 1e-3:
        sys.exit("these are not the same model")


def decode_turns(model, hone, repeats):
    asked = [int(x) for x in sys.argv[2:]]
    for batch, bar in ((1, 1.0), (16, 1.0), (64, 1.5)):
        if asked and batch not in asked:
            continue
        peers = {f: Llama(model, batch, PROMPT + GEN, f) for f in (False, True)}
        trial = {f: p.rate() for f, p in peers.items()}
        best = max(trial, key=trial.get)
        hone.ask("decode", batch, PROMPT, GEN)
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(hone.ask("decode", batch, PROMPT, GEN)["tokens_s"])
            theirs.append(peers[best].rate())
        for p in peers.values():
            p.close()
        print("batch %d: hone tokens/s %s; llama.cpp %s (flash attention %s)" % (batch, side.spread(ours), side.spread(theirs), "on" if best else "off"))
        side.verdict("decode at batch %d" % batch, statistics.median(ours) / statistics.median(theirs), bar)


def alone(model, folder, hone, repeats):
    peer = Llama(model, 1, 1024, True)
    peer.prefill(1024)
    for n in (256, 1024):
        got = [hone.ask("prefill", n) for _ in range(max(repeats, 15) + 1)][1:]   # the share moves by a third from one to the next
        theirs = statistics.median(peer.prefill(n) for _ in range(repeats))
        g = sorted(got, key=lambda r: r["seconds"])[len(got) // 2]
        print("prefill of %d: %.0f tokens/s, %.0f GFLOP/s, the product alone %.0f, the multiply-add peak %.0f (%.0f %% of it); llama.cpp %.0f tokens/s" % (
            n, g["tokens_s"], g["gflops"], g["product"], g["peak"], 100 * g["share_of_peak"], n / theirs))
        side.verdict("prefill of %d as a share of the matrix product's rate" % n, statistics.median(r["share_of_product"] for r in got), 0.8)
    peer.close()
    s = [hone.ask("share", 1024, 16) for _ in range(repeats)][-1]
    print("16 answers to a prompt of 1024: %d rows computed, %d for one answer; %.3f s beside %.3f s" % (s["rows_many"], s["rows_one"], s["many"], s["one"]))
    big = side.Hone("bench_decode", folder, side.THREADS, 256, 128)
    o = [big.ask("over", 256, 32) for _ in range(3)][-1]
    big.close()
    print("scheduler and index lists at batch 256: %.0f us of a step of %.1f ms = %.2f %% (bar 2 %%)" % (o["dry_step"] * 1e6, o["step"] * 1e3, 100 * o["share"]))
    prompt, t = lines("hone-bench-first.jsonl", [{"tokens": side.tokens(16, VOCAB)}]), []
    for _ in range(repeats + 1):
        t0 = time.perf_counter()
        subprocess.run([os.path.join(side.BUILD, "hone"), "generate", folder, "--in", prompt, "--out", os.devnull, "--max-tokens", "1"], check=True)
        t.append(time.perf_counter() - t0)
    print("start of the program to its end after one token: %s s (bar 0.3 s)" % side.spread(t[1:]))


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    side.load_note()
    folder = side.model(os.path.join(side.ROOT, "bench", "models", "dense_100m.json"), os.path.join(TMP, "hone-bench-dense"))
    gguf = os.path.join(TMP, "hone-bench-dense.gguf")
    if not os.path.exists(gguf):
        convert(folder, gguf)
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    print("llama-cpp-python %s: %s" % (L.__version__, L.llama_print_system_info().decode().split("|", 1)[-1].strip()))
    model = L.llama_model_load_from_file(gguf.encode(), L.llama_model_default_params())
    if not model:
        sys.exit("llama.cpp does not load " + gguf)
    same_model(model, folder)
    hone = side.Hone("bench_decode", folder, side.THREADS, 64, 1152)
    decode_turns(model, hone, repeats)
    alone(model, folder, hone, repeats)
    hone.close()


main()
