#!/usr/bin/env python3
"""gguf_llama.py HONE MODEL - MODEL (a folder, or a GGUF file) written by hone as GGUF, run by llama.cpp and by hone from the
same file: token ids of 50 prompts, greedy answers (F32: the same), log-probs by type.   needs: xllamacpp"""
import json, os, subprocess, sys, tempfile, urllib.request
import xllamacpp

HONE, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
WORK = tempfile.mkdtemp(prefix="hone-llama-")
TOKENS = 16
NEAR = {"f32": 2e-3, "bf16": 0.05, "f16": 0.05, "q8_0": 0.2, "q4_0": 1.0}  # of a log-prob, in the mean: llama.cpp multiplies
# numbers that it has made shorter too (8 bits where the weights are blocks, and in half precision), so only f32 is close
passed = failed = 0


def ok(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what)


ASKS = ["What is the capital of %s?", "Write one sentence about %s.", "Name three things that one finds in %s.", "Is %s large? Why?",
        "Translate to French: I live in  %s, since 1998."]
THINGS = ["France", "the sea", "a kitchen", "Übersee", "東京", "Peru", "your garden", "12,345 houses", "an   attic\n\tor cellar", "it's ☃ land"]
PROMPTS = [[{"role": "user", "content": a % t}] for a in ASKS for t in THINGS]


def lines(verb, model, rows, *args):
    r = subprocess.run([HONE, verb, model, "--in", "-", *args], input="\n".join(map(json.dumps, rows)), capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return [json.loads(x) for x in r.stdout.splitlines()]


def llama(path, prompts):
    p = xllamacpp.CommonParams()
    p.model.path, p.n_parallel, p.n_ctx, p.warmup = path, 1, 512, False
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # else keys and values are kept in half precision
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(os.environ.get("THREADS", 1))
    s, out = xllamacpp.Server(p), []
    for ids in prompts:
        r = s.handle_completions({"prompt": ids, "n_predict": TOKENS, "temperature": 0, "n_probs": 1, "cache_prompt": False})
        r = json.loads(r) if isinstance(r, (str, bytes)) else r
        c = r["choices"][0]
        out.append(([(t["id"], t["logprob"]) for t in c["logprobs"]["content"]], c["text"]))
    return s, out


texts = [x["text"] for x in lines("template", MODEL, [{"messages": p, "add_generation_prompt": True} for p in PROMPTS])]
for kind in NEAR:
    path = os.path.join(WORK, kind + ".gguf")
    subprocess.run([HONE, "convert", MODEL, path, "--dtype", kind], check=True)
    mine = lines("generate", path, [{"messages": p} for p in PROMPTS], "--greedy", "--max-tokens", str(TOKENS), "--threads", "1")
    prompts = [m["tokens"][:m["prompt_length"]] for m in mine]
    server, theirs = llama(path, prompts)
    if kind == "f32":
        for text, ids in zip(texts, prompts):
            ask = json.dumps({"content": text, "parse_special": True, "add_special": False}).encode()
            with urllib.request.urlopen(urllib.request.Request(server.listening_address + "/tokenize", ask)) as r:
                ok(json.load(r)["tokens"] == ids, "ids of %r" % text)
    equal, diffs = 0, []
    for m, (t, said) in zip(mine, theirs):
        ids, k = m["tokens"][m["prompt_length"]:], 0
        for id, logprob in t:  # llama.cpp's server tells the last token of a character alone
            while k < len(ids) and ids[k] != id:
                k += 1
            if k < len(ids):
                diffs.append(abs(m["logprobs"][k] - logprob))
            k += 1
        equal += m["text"] == said
    mean = sum(diffs) / max(len(diffs), 1)
    print("%s: %d of %d greedy answers equal, log-probs of %d tokens differ by %.2g in the mean, %.2g at most"
          % (kind, equal, len(mine), len(diffs), mean, max(diffs)))
    ok(kind != "f32" or equal == len(mine), "greedy answers of f32")
    ok(mean < NEAR[kind], "log-probs of " + kind)
    del server
    os.remove(path)
os.rmdir(WORK)
print("%d passed, %d failed, 0 skipped" % (passed, failed))
sys.exit(failed != 0)
