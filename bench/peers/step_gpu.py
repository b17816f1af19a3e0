#!/usr/bin/env python3
"""step_gpu.py FOLDER CONFIG LAYERS [BATCHES] - what it costs a step that a row's result must not depend on the rows beside it.

FOLDER holds hone, bench_prod_gpu and bench_attend_gpu.  Every product of the model, and attention, is timed alone on the
same shapes here and by torch, which lets cuBLASLt (split-K and all), its grouped products and cuDNN's attention choose
freely; the differences, as often as a step has them, are the price.  It is put beside the rest of a training step of 4096
tokens and of decoding BATCHES (1,16,64,256) sequences at context 1500, both measured by `hone bench`.  One JSON line each.
Gradients of weights are written, not added to, on both sides: so does a step's first micro-batch (train/policy.c: fresh),
here the only one.  torch writes bf16, we float32.  Not compared: the head, whose products are fused with what torch does
apart; decoding's attention (over pages); latent attention in training."""
import json, re, subprocess, sys, time
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

folder, path, layers = sys.argv[1], sys.argv[2], int(sys.argv[3])
batches = [int(b) for b in (sys.argv[4] if len(sys.argv) > 4 else "1,16,64,256").split(",")]
c = json.load(open(path))
get = lambda *names: next((c[n] for n in names if c.get(n)), 0)
H, heads, F_ = c["hidden_size"], c["num_attention_heads"], c["intermediate_size"]
E, k, Fe = get("num_experts", "n_routed_experts", "num_local_experts"), get("num_experts_per_tok"), get("moe_intermediate_size") or F_
latent = get("kv_lora_rank")
if latent:
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    q = get("q_lora_rank")
    dense = [(q or heads * (nope + rope), H), (latent + rope, H), (H, heads * v)] + ([(heads * (nope + rope), q)] if q else [])
    train_only = [(heads * (nope + v), latent)]
else:
    d, kv = get("head_dim") or H // heads, get("num_key_value_heads") or heads
    dense, train_only = [((heads + 2 * kv) * d, H), (H, heads * d)], []
if E:
    shared = get("n_shared_experts") * Fe
    grouped = [(2 * Fe, H), (H, Fe)]
    dense += [(2 * shared, H), (H, shared)] if shared else []
else:
    grouped = []
    dense += [(2 * F_, H), (H, F_)]
T = 4096


def noise(*shape): return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def seconds(f, reps=8):
    f(), f(), torch.cuda.synchronize()
    time.sleep(.02)  # as our benches do: the chip is limited by power
    t = []
    for _ in range(5):
        t0 = time.perf_counter()
        for _ in range(reps): f()
        torch.cuda.synchronize()
        t.append((time.perf_counter() - t0) / reps)
    return sorted(t)[2]


def graphed(f, n):
    f(0), torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(n): f(i)
    return seconds(g.replay, 200 // n + 1) / n


def spread(rows):  # the rows of E experts, drawn as bench_prod_gpu draws them: their ends
    s, n, mask = 0x9E3779B97F4A7C15, [0] * E, 2**64 - 1
    for _ in range(rows):
        s ^= s << 13 & mask
        s ^= s >> 7
        s ^= s << 17 & mask
        n[s % E] += 1
    return torch.tensor(n, device="cuda").cumsum(0).to(torch.int32)


def library(shape):
    if len(shape) == 2:
        O, I = shape
        copies = int(4e8 / (2 * O * I)) + 1
        w, t = noise(copies, O, I), {}
        for b in batches:
            x, y = noise(b, I), noise(b, O)
            t[b] = graphed(lambda i: torch.matmul(x, w[i % copies].t(), out=y), copies)
        return t
    if len(shape) == 3:
        n, O, I = shape
        x, w, y = noise(n, I), noise(O, I), noise(n, O)
        return [seconds(lambda: x @ w.t()), seconds(lambda: y @ w), seconds(lambda: y.t() @ x)]
    e, O, I, n = shape
    x, w, y, ends = noise(n, I), noise(e, O, I), noise(n, O), spread(n)
    forward = lambda: F.grouped_mm(x, w.transpose(-2, -1), offs=ends)
    if n < 4096: return [graphed(lambda i: forward(), 4)]
    return [seconds(forward), seconds(lambda: F.grouped_mm(y, w, offs=ends)), seconds(lambda: F.grouped_mm(y.t(), x, offs=ends))]


def ours(shapes):
    text = subprocess.run([folder + "/bench_prod_gpu", "20", "of"] + ["x".join(map(str, s)) for s in shapes], capture_output=True, text=True, check=True).stdout
    out = []
    for s, line in zip(shapes, text.strip().split("\n")):
        if len(s) == 2: out.append({b: float(re.search(rf" M{b} ([0-9.]+)", line)[1]) * 1e-6 for b in batches})
        elif " us," in line: out.append([float(re.search(r"([0-9.]+) us", line)[1]) * 1e-6])
        else:
            fl = 2e-12 * s[0] * s[1] * s[2] if len(s) == 3 else 2e-12 * s[1] * s[2] * s[3]
            out.append([fl / float(x) for x in re.search(r"forward (\d+), dx (\d+), .*first (\d+)", line).groups()])
    return out


def ours_attend(shape):
    line = subprocess.run([folder + "/bench_attend_gpu", "20", "of", "x".join(map(str, shape))], capture_output=True, text=True, check=True).stdout
    return sum(float(x) for x in re.search(r"forward ([0-9.]+) ms .* backward ([0-9.]+) ms", line).groups()) * 1e-3


def library_attend(shape):
    n, length, heads, kv, d = shape
    q, k, v, dy = [noise(n, h, length, d) for h in (heads, kv, kv, heads)]
    for x in (q, k, v): x.requires_grad_()
    def both():  # gradients as they come, added to nothing
        torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (q, k, v), dy)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return seconds(both)


def bench(*args):
    return json.loads(subprocess.run([folder + "/hone", "bench", *map(str, args), "--device", "cuda"], capture_output=True, text=True, check=True).stdout)


def told(what, step, price, worst):
    print(json.dumps({"exactness of a step": what, "model": path.split("/")[-1], "seconds": round(step, 6), "price": round(price, 6),
                      "cost": round(price / (step - price), 4), "dearest": worst}), flush=True)


# ---- a training step
shapes = [(T, *s) for s in dense + train_only] + [(E, *s, T * k) for s in grouped]
price, dearest = 0, []
for s, mine in zip(shapes, ours(shapes)):
    lib = library(s)
    price += layers * (sum(mine) - sum(lib))
    dearest.append((round(sum(mine) / sum(lib) - 1, 3), "x".join(map(str, s))))
step = bench("train-slice", path, "--layers", layers, "--tokens", T, "--length", T, "--keep-logits", "--lines", 200)
if not latent:
    shape = (1, T, heads, kv, d)
    turns = [(ours_attend(shape), library_attend(shape)) for _ in range(3)]
    mine, lib = [sorted(t)[1] for t in zip(*turns)]
    price += layers * (mine - lib)
    dearest.append((round(mine / lib - 1, 3), "attention"))
told(f"training, {T} tokens, {layers} layers", step["seconds"], price, sorted(dearest)[-2:])

# ---- decoding
mine = ours(dense)
lib = [library(s) for s in dense]
for b in batches:
    price = sum(m[b] - l[b] for m, l in zip(mine, lib))
    dearest = [(round(m[b] / l[b] - 1, 3), "x".join(map(str, s))) for s, m, l in zip(dense, mine, lib)]
    shapes = [(E, *s, b * k) for s in grouped if b * k < 4096]
    for s, m in zip(shapes, ours(shapes) if shapes else []):
        l = library(s)
        price += m[0] - l[0]
        dearest.append((round(m[0] / l[0] - 1, 3), "x".join(map(str, s))))
    torch.cuda.empty_cache()
    step = bench("decode", path, "--batch", b, "--answer", 24 if b < 64 else 40 if b < 256 else 64, "--layers", layers)
    told(f"decoding {b}, {layers} layers", step["seconds"], layers * price, sorted(dearest)[-2:])
