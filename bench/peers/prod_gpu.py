# prod_gpu.py - torch on the shapes of bench_prod_gpu: dense products as its cuBLASLt chooses them (split-K and all), its grouped product.
import time, torch

def seconds(f, reps, pause=0.1):
    f(0), f(1), torch.cuda.synchronize()
    time.sleep(pause)
    t = []
    for g in range(5):
        t0 = time.perf_counter()
        for i in range(reps): f(i)
        torch.cuda.synchronize()
        t.append((time.perf_counter() - t0) / reps)
    return sorted(t)[2]

def noise(*shape): return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

for T, O, I in [(16384, 4096, 7168), (16384, 2048, 4096), (16384, 7168, 2048), (4096, 2048, 2048), (1024, 2048, 2048)]:
    x, w, y, fl = noise(T, I), noise(O, I), noise(T, O), 2e-12 * T * O * I
    print(f"dense {T} x {O} x {I}, TFLOP/s: forward {fl / seconds(lambda i: torch.matmul(x, w.t(), out=y), 8):.0f}, "
          f"dx {fl / seconds(lambda i: y @ w, 8):.0f}, dw (bf16 =) {fl / seconds(lambda i: y.t() @ x, 8):.0f}", flush=True)
for O, I in [(4096, 7168), (7168, 2048), (2048, 4096), (2048, 2048)]:
    copies = int(4e8 / (2 * O * I)) + 1
    w, line = noise(copies, O, I), []
    for M in (1, 16, 64, 96, 128, 256, 512):
        x, y = noise(M, I), noise(M, O)
        line.append(f"M{M} {seconds(lambda i: torch.matmul(x, w[i % copies].t(), out=y), 200) * 1e6:.1f}")
    print(f"few {O} x {I}, us:", " ".join(line), flush=True)
