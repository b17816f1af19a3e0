#!/usr/bin/env python3
"""gguf_bits.py HONE - GGUF files of every family and type, both ways, beside PyPI's gguf: the numbers that hone reads are the
bits of gguf.dequantize, and what it writes are the bytes of gguf.quantize.   needs: numpy, gguf"""
import json, os, struct, subprocess, sys, tempfile
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, GGUFReader, GGUFWriter, dequantize, quantize

HONE = os.path.abspath(sys.argv[1])
WORK = tempfile.mkdtemp(prefix="hone-gguf-")
passed = failed = 0


def ok(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what)


def run(*args):
    r = subprocess.run([HONE, *args], capture_output=True, text=True, cwd=WORK)
    ok(r.returncode == 0, " ".join(args) + ": " + r.stderr[-300:])
    return r.returncode == 0


def folder(path):
    """The tensors of a folder that hone wrote as float32."""
    data = open(os.path.join(path, "model.safetensors"), "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a:8 + n + b], dtype="<f4").reshape(t["shape"])
    return out


COMMON = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
          "vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "hidden_act": "silu",
          "torch_dtype": "float32", "initializer_range": 0.05}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
FAMILIES = {
    "llama": dict(COMMON, model_type="llama", intermediate_size=512, tie_word_embeddings=True),
    "llama3": dict(COMMON, model_type="llama", intermediate_size=512, tie_word_embeddings=False, rope_theta=500000.0,
                   rope_scaling=LLAMA3),
    "mixtral": dict(COMMON, model_type="mixtral", intermediate_size=256, num_local_experts=4, num_experts_per_tok=2,
                    tie_word_embeddings=False),
    "qwen2": dict(COMMON, model_type="qwen2", intermediate_size=512, tie_word_embeddings=False),
    "qwen3": dict(COMMON, model_type="qwen3", intermediate_size=512, tie_word_embeddings=True),
    "qwen3_moe": dict(COMMON, model_type="qwen3_moe", intermediate_size=512, moe_intermediate_size=256, num_experts=4,
                      num_experts_per_tok=2, norm_topk_prob=True, tie_word_embeddings=False),
}
READ = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
WRITE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}  # where a block has its half-precision scales
rnd = np.random.default_rng(5)


def any_blocks(shape, kind):
    """Random bytes as blocks of that type, with scales that are finite."""
    if kind in ("F32", "F16", "BF16"):
        x = rnd.standard_normal(shape).astype(np.float32)
        return x if kind == "F32" else x.astype(np.float16) if kind == "F16" else quantize(x, T.BF16)
    size, bytes_ = GGML_QUANT_SIZES[T[kind]]
    n = int(np.prod(shape)) // size
    b = rnd.integers(0, 256, (n, bytes_), dtype=np.uint8)
    for at in HALVES[kind]:
        b[:, at:at + 2] = (rnd.standard_normal((n, 1)) * 10.0 ** rnd.integers(-7, 3, (n, 1))).astype(np.float16).view(np.uint8)
    return b.reshape(*shape[:-1], shape[-1] // size * bytes_)


def turned(w, heads):
    """Rows as llama.cpp's rope wants them: (head, half, pair) -> (head, pair, half)."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def straight(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


PART = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
EXPERT = {"ffn_gate_exps": ("gate_proj", "w1"), "ffn_up_exps": ("up_proj", "w3"), "ffn_down_exps": ("down_proj", "w2")}


def hub(name, w, family):
    """[(hub's name, its numbers)] of a tensor of the file."""
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
           "output.weight": "lm_head.weight"}
    if name in top:
        return [(top[name], w)]
    _, layer, part, kind = name.split(".")
    at = "model.layers.%s." % layer
    if part in EXPERT:
        ours = "block_sparse_moe.experts.%d." + EXPERT[part][1] if family == "mixtral" else "mlp.experts.%d." + EXPERT[part][0]
        return [(at + ours % e + ".weight", w[e]) for e in range(len(w))]
    if family in ("llama", "llama3", "mixtral") and part in ("attn_q", "attn_k"):
        w = straight(w, 4 if part == "attn_q" else 2)
    ours = "block_sparse_moe.gate" if family == "mixtral" and part == "ffn_gate_inp" else PART[part]
    return [(at + ours + "." + kind, w)]


def same(a, b):
    return a.shape == b.shape and np.array_equal(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


for family, config in FAMILIES.items():
    json.dump(config, open(os.path.join(WORK, "config.json"), "w"))
    if not run("random", "config.json", family, "--seed", "3", "--dtype", "f32"):
        continue
    mine = folder(os.path.join(WORK, family))
    for kind in WRITE:  # ours, read by gguf
        out = "%s-%s.gguf" % (family, kind)
        if not run("convert", family, out, "--dtype", kind.lower()):
            continue
        r = GGUFReader(os.path.join(WORK, out))
        seen, bad = set(), []
        for t in r.tensors:
            if t.name == "rope_freqs.weight":
                continue
            parts = hub(t.name, np.empty([int(d) for d in reversed(t.shape)], np.float32), family)
            want = np.stack([mine[n] for n, _ in parts]) if t.name.split(".")[-2] in EXPERT else mine[parts[0][0]]
            seen.update(n for n, _ in parts)
            if family in ("llama", "llama3", "mixtral") and t.name.split(".")[-2] in ("attn_q", "attn_k"):
                want = turned(want, 4 if ".attn_q." in t.name else 2)
            small = want.ndim == 1 or "ffn_gate_inp" in t.name
            q = T.F32 if small else T[kind]
            if t.tensor_type != q or quantize(want, q).tobytes() != t.data.tobytes():
                bad.append(t.name)
        ok(not bad and seen == set(mine), "%s as %s, written: %s" % (family, kind, bad or set(mine) ^ seen))
        back = "back-%s-%s" % (family, kind)
        if kind == "F32" and run("convert", out, back, "--dtype", "f32"):
            again = folder(os.path.join(WORK, back))
            ok(again.keys() == mine.keys() and all(same(again[k], mine[k]) for k in mine), family + ": there and back")
    for kind in READ:  # gguf's, read by hone
        f32 = GGUFReader(os.path.join(WORK, family + "-F32.gguf"))
        path = os.path.join(WORK, "in.gguf")
        w = GGUFWriter(path, f32.fields["general.architecture"].contents())
        for k, f in f32.fields.items():
            if not k.startswith("GGUF.") and k not in ("general.architecture", "general.file_type"):
                w.add_key_value(k, f.contents(), f.types[0])
        want = {}
        for t in f32.tensors:
            shape = [int(d) for d in reversed(t.shape)]
            small = len(shape) == 1 or "ffn_gate_inp" in t.name
            data = np.array(t.data) if small else any_blocks(shape, kind)
            w.add_tensor(t.name, data, raw_dtype=None if small or kind in ("F32", "F16") else T[kind])
            if t.name != "rope_freqs.weight":
                with np.errstate(over="ignore"):
                    full = data if small else dequantize(data, T[kind]).reshape(shape)
                want.update(hub(t.name, full.astype(np.float32), family))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        if run("convert", "in.gguf", "read", "--dtype", "f32", "--force"):
            got = folder(os.path.join(WORK, "read"))
            bad = [k for k in want if k not in got or not same(got[k], want[k])]
            ok(not bad and got.keys() == want.keys(), "%s in %s, read: %s" % (family, kind, bad[:3]))
subprocess.run(["rm", "-rf", WORK])
print("%d passed, %d failed, 0 skipped" % (passed, failed))
sys.exit(failed != 0)
