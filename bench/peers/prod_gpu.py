# prod_gpu.py [FILE] - torch on the shapes of bench_prod_gpu: dense products as its cuBLASLt chooses them (split-K and all).  FILE: what bench_prod_gpu wrote;
# then one JSON line for each product, with what it costs that a row's result must not depend on the others: ours over the library's, in time.
import json, re, sys, time, torch

def seconds(f, reps, pause=0.02):
    f(0), f(1), torch.cuda.synchronize()
    time.sleep(pause)
    t = []
    for g in range(5):
        t0 = time.perf_counter()
        for i in range(reps): f(i)
        torch.cuda.synchronize()
        t.append((time.perf_counter() - t0) / reps)
    return sorted(t)[2]

def graphed(f, n):  # as a graph: launches of a library cost the host more than these products take
    g, s = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(s):
        f(0)
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        for i in range(n): f(i)
    return seconds(lambda i: g.replay(), 200 // n + 1) / n

def noise(*shape): return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

ours = open(sys.argv[1]).read() if len(sys.argv) > 1 else ""
worst = 0
def told(what, ours_s, s):
    global worst
    if ours_s is None: return
    worst = max(worst, ours_s / s - 1)
    print(json.dumps({"exactness": what, "ours_us": round(ours_s * 1e6, 2), "library_us": round(s * 1e6, 2), "cost": round(ours_s / s - 1, 3)}), flush=True)

for T, O, I in [(16384, 4096, 7168), (16384, 2048, 4096), (16384, 7168, 2048), (4096, 5120, 2048), (4096, 2048, 4096)]:
    x, w, y, fl = noise(T, I), noise(O, I), noise(T, O), 2e-12 * T * O * I
    t = {"forward": seconds(lambda i: torch.matmul(x, w.t(), out=y), 8), "dx": seconds(lambda i: y @ w, 8), "dw": seconds(lambda i: y.t() @ x, 8)}
    if not ours:
        print(f"dense {T} x {O} x {I}, TFLOP/s:", ", ".join(f"{k} {fl / s:.0f}" for k, s in t.items()), flush=True)
    m = re.search(rf"dense {T} x {O} x {I}, TFLOP/s: forward (\d+), dx (\d+), dw (\d+)", ours)
    for i, (k, s) in enumerate(t.items()):
        told(f"{T} x {O} x {I}, {k}", fl / float(m[i + 1]) if m else None, s)
for O, I in [(4096, 7168), (7168, 2048), (2048, 4096), (5120, 2048)]:
    copies = int(4e8 / (2 * O * I)) + 1
    w, line = noise(copies, O, I), []
    for M in (1, 16, 64, 128, 256):
        x, y = noise(M, I), noise(M, O)
        s = graphed(lambda i: torch.matmul(x, w[i % copies].t(), out=y), copies)
        line.append(f"M{M} {s * 1e6:.1f}")
        m = re.search(rf"few {O} x {I}, us:.* M{M} ([0-9.]+)", ours)
        told(f"{M} rows, {O} x {I}", float(m[1]) * 1e-6 if m else None, s)
    if not ours:
        print(f"few {O} x {I}, us:", " ".join(line), flush=True)
if ours:
    print(json.dumps({"bench": "exactness", "worst": round(worst, 3), "of_library": round(1 / (1 + worst), 4)}))
