#!/usr/bin/env python3
"""decode.py [avx2] [quick] [bars] [ROUNDS] [BATCH ...] - generation with a 100 M-parameter Qwen2: hone beside llama.cpp, float32 weights and caches, two threads.

Decoding 64 tokens (32 at batch 64) after a prompt of 129, at batch 1, 16 and 64, in turns.  llama.cpp's time is llama_decode alone, fed with
tokens that are known beforehand; hone's is the whole step, drawing and log-probs included.  llama.cpp is the quickest of its builds
($LLAMA, or llama beside this Python: native and native-blas, or avx2 and avx2-blas), with and without flash attention.  Then what
concerns hone by itself (not with "bars"): prefill against the rate of the matrix product alone and the multiply-add peak, 16 answers to one prompt, the
scheduler's share of a step, and from the start of the program to the first token.  That both compute the same model is checked by log-probs first."""
import json, os, statistics, subprocess, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side

PROMPT, VOCAB = 129, 32000      # hone's pages hold 64 tokens: two whole ones, which are found again, and a token to begin with


class Llama:
    """A context for that many sequences of so many tokens."""

    def __init__(self, L, model, seqs, length, flash):
        p = L.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = seqs * length, 2048, 512, seqs
        p.n_threads = p.n_threads_batch = side.THREADS
        p.type_k = p.type_v = 0   # float32
        p.no_perf = True
        if hasattr(p, "flash_attn_type"):
            p.flash_attn_type = 1 if flash else 0
        else:
            p.flash_attn = flash
        self.L, self.seqs, self.ctx, self.batch, self.filled = L, seqs, L.llama_init_from_model(model, p), L.llama_batch_init(2048, 0, 1), False
        if not self.ctx:
            raise RuntimeError("llama.cpp gave no context")
        self.memory = L.llama_get_memory(self.ctx)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (t, pos, s, want) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = t, pos, 1, s, want
        t0 = time.perf_counter()
        rc = self.L.llama_decode(self.ctx, b)
        self.L.llama_synchronize(self.ctx)
        if rc:
            raise RuntimeError("llama_decode: %d" % rc)
        return time.perf_counter() - t0

    def prefill(self, n):
        self.L.llama_memory_clear(self.memory, True)
        t = side.tokens(n, VOCAB)
        return sum(self.decode([(t[i], i, 0, i == n - 1) for i in range(k, min(k + 2048, n))]) for k in range(0, n, 2048))

    def rate(self, gen):
        """Tokens a second of decode steps in which every sequence takes one token; the prompts are read once."""
        t = side.tokens(self.seqs * (PROMPT + gen), VOCAB)
        for s in range(self.seqs):
            if self.filled:
                self.L.llama_memory_seq_rm(self.memory, s, PROMPT, -1)
            else:
                self.decode([(t[s * PROMPT + i], i, s, i == PROMPT - 1) for i in range(PROMPT)])
        self.filled = True
        sec = sum(self.decode([(t[(s * gen + k) % len(t)], PROMPT + k, s, True) for s in range(self.seqs)]) for k in range(gen - 1))
        return self.seqs * (gen - 1) / sec

    def logprobs(self, ids):
        import numpy as np
        self.decode([(t, i, 0, True) for i, t in enumerate(ids)])
        x = np.stack([np.ctypeslib.as_array(self.L.llama_get_logits_ith(self.ctx, i), shape=(VOCAB,)) for i in range(len(ids))]).astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        lp = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        return [float(lp[i, ids[i + 1]]) for i in range(len(ids) - 1)]

    def close(self):
        self.L.llama_batch_free(self.batch)
        self.L.llama_free(self.ctx)


def peer(gguf):
    import ctypes
    import llama_cpp as L
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    params, open_now = L.llama_model_default_params(), {}
    params.use_mmap = False         # weights in huge pages, as hone's are
    model = L.llama_model_load_from_file(gguf.encode(), params)
    if not model:
        sys.exit("llama.cpp does not load " + gguf)

    def context(*key):
        if key not in open_now:
            for k in list(open_now):
                open_now.pop(k).close()
            open_now[key] = Llama(L, model, *key)
        return open_now[key]

    def answer(words):
        what, (flash, *n) = words[0], map(int, words[1:])
        if what == "decode":    # FLASH BATCH TOKENS, ROOM
            return {"tokens_s": context(n[0], PROMPT + n[2], flash).rate(n[1])}
        if what == "prefill":
            return {"seconds": context(1, 1024, flash).prefill(n[0])}
        return {"logprobs": context(1, 256, flash).logprobs(side.tokens(200, VOCAB))}
    side.serve(answer, version=L.__version__, info=L.llama_print_system_info().decode().split("|", 1)[-1].strip())


def lines(name, rows):
    path = os.path.join(side.TMP, name)
    with open(path, "w") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")
    return path


def same_model(peer, folder):
    out = os.path.join(side.TMP, "hone-bench-score.jsonl")
    subprocess.run([side.HONE, "score", folder, "--in", lines("hone-bench-in.jsonl", [{"tokens": side.tokens(200, VOCAB)}]), "--out", out], check=True)
    ours = json.loads(open(out).readline())["logprobs"]
    worst = max(abs(a - b) for a, b in zip(ours, peer.ask("logprobs", 0)["logprobs"]))
    print("largest difference of 199 log-probs, hone and llama.cpp: %.2g" % worst)
    if not worst < 1e-3:
        sys.exit("these are not the same model")


def decode_turns(peers, hone, rounds, asked, bytes):
    for batch, bar, gen in ((1, 1.0, 64), (16, 1.5, 64), (64, 1.5, 32)):
        if asked and batch not in asked:
            continue
        gen = 8 if side.QUICK else gen
        trial = {(build, flash): p.ask("decode", flash, batch, gen // 2, gen)["tokens_s"] for build, p in peers.items() for flash in (0, 1)}
        build, flash = max(trial, key=trial.get)
        print("  batch %d, llama.cpp's tokens/s tried: %s" % (batch, ", ".join("%s%s %.4g" % (k[0], " flash" if k[1] else "", v) for k, v in trial.items())), flush=True)
        peers[build].ask("decode", flash, batch, 2, gen)
        hone.ask("decode", batch, PROMPT, gen)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(hone.ask("again", batch, PROMPT, gen)["tokens_s"])
            theirs.append(peers[build].ask("decode", flash, batch, gen, gen)["tokens_s"])
        side.row("decode, 100 M float32, batch %d" % batch, ours, theirs, "tokens/s", bar, "%s%s" % (build, ", flash" if flash else ""), rate=True)
        if batch == 1:      # a program that reads the weights once a token: the yardstick of reading cannot be below
            for who, rate in (("hone", ours), ("llama.cpp", theirs)):
                side.reads("%s's decoding" % who, statistics.median(rate) * bytes * 1e-9)


def alone(peer, folder, hone, rounds):
    peer.ask("prefill", 1, 1024)
    for n in (256, 1024):
        got = [hone.ask("prefill", n) for _ in range(side.rounds(15) + 1)][1:]   # the share moves by a third from one to the next
        theirs = statistics.median(peer.ask("prefill", 1, n)["seconds"] for _ in range(rounds))
        g = sorted(got, key=lambda r: r["seconds"])[len(got) // 2]
        print("prefill of %d: %.0f tokens/s, %.0f GFLOP/s, the product alone %.0f, the multiply-add peak %.0f (%.0f %% of it); llama.cpp %.0f tokens/s" % (
            n, g["tokens_s"], g["gflops"], g["product"], g["peak"], 100 * g["share_of_peak"], n / theirs))
        print("  as a share of the matrix product's rate: %s (bar 0.8)" % side.spread([r["share_of_product"] for r in got]))
    s = [hone.ask("share", 1024, 16) for _ in range(rounds)][-1]
    print("16 answers to a prompt of 1024: %d rows computed, %d for one answer; %.3f s beside %.3f s" % (s["rows_many"], s["rows_one"], s["many"], s["one"]))
    big = side.Hone("bench_decode", folder, side.THREADS, 256, 128)
    o = [big.ask("over", 256, 32) for _ in range(3)][-1]
    big.close()
    print("scheduler and index lists at batch 256: %.0f us of a step of %.1f ms = %.2f %% (bar 2 %%)" % (o["dry_step"] * 1e6, o["step"] * 1e3, 100 * o["share"]))


def start(folder):
    """Seconds from the start of `hone generate` to its end after one token."""
    prompt = lines("hone-bench-first.jsonl", [{"tokens": side.tokens(16, VOCAB)}])
    t0, c0 = time.perf_counter(), os.times()
    subprocess.run([side.HONE, "generate", folder, "--in", prompt, "--out", os.devnull, "--max-tokens", "1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    c1 = os.times()
    return side.seconds({"seconds": time.perf_counter() - t0, "cpu": c1.children_user + c1.children_system - c0.children_user - c0.children_system})


def starts(folder, rounds):
    half, whole = (side.model(os.path.join(side.ROOT, "bench", "models", "dense_500m.json"), os.path.join(side.TMP, "hone-bench-500m-" + t), "--dtype", t) for t in ("bf16", "f32"))
    start(half), start(whole)
    ours, theirs = zip(*((start(half), start(whole)) for _ in range(rounds)))
    side.row("start to first token, 0.5 B bf16 beside the same in float32", ours, theirs, "s", 1.0, "hone itself")
    print("start of the program to its end after one token, 100 M: %s s (bar 0.3 s)" % side.spread([start(folder) for _ in range(rounds + 1)][1:]))


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(sys.argv[2])
    bars = side.taken("bars")
    rounds = side.rounds(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    side.heading()
    folder = side.model(os.path.join(side.ROOT, "bench", "models", "dense_100m.json"), os.path.join(side.TMP, "hone-bench-dense"))
    gguf = os.path.join(side.TMP, "hone-bench-dense.gguf")
    if not os.path.exists(gguf):
        from gguf_f32 import convert
        convert(folder, gguf)
    builds, peers = os.environ.get("LLAMA", os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "llama")), {}
    for b in ("avx2", "avx2-blas") if side.AVX2 else ("native", "native-blas"):
        if os.path.isdir(os.path.join(builds, b)):
            peers[b] = side.Peer(__file__, gguf, env=side.surroundings("glibc", PYTHONPATH=os.path.join(builds, b)))
            print("  llama-cpp-python %s, %s: %s" % (peers[b].told["version"], b, peers[b].told["info"]))
    hone = side.Hone("bench_decode", folder, side.THREADS, 64, 1152)
    if peers:
        same_model(next(iter(peers.values())), folder)
        decode_turns(peers, hone, rounds, list(map(int, sys.argv[2:])), os.path.getsize(gguf))
    else:
        side.cannot("decode, 100 M float32", "no build of llama.cpp under " + builds)
    if not bars and peers:
        alone(next(iter(peers.values())), folder, hone, rounds)
    hone.close()
    starts(folder, rounds)


main()
