#!/usr/bin/env python3
"""adamw.py [MILLIONS] [REPEATS] - AdamW: hone beside torch's fused CPU AdamW, and as a share of the memory's rate.

Float32, two threads each, in turns; 128 Mi parameters (2 GiB of state) by default, far beyond the caches.  The memory's rate
is that of the same seven streams (read w, m, v, g; write w, m, v) with one addition each, in the same run.  torch also as it
is met in training: many tensors of the shapes of a model, in one step."""
import os, statistics, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side
side.two_threads()
import torch


def torch_adamw(shapes):
    ps = []
    for n in shapes:
        p = torch.nn.Parameter((torch.arange(n, dtype=torch.float32) % 1999) / 1999 - 0.5)
        p.grad = 1e-3 * p.detach().clone()
        ps.append(p)
    opt = torch.optim.AdamW(ps, lr=1e-4, weight_decay=0.01, fused=True)

    def step():
        t0, c0 = time.perf_counter(), time.process_time()
        opt.step()
        return {"seconds": time.perf_counter() - t0, "cpu": time.process_time() - c0}
    return step


def main():
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    n = millions * 1024 * 1024
    torch.set_num_threads(side.THREADS)
    side.load_note()
    print("torch %s, %d Mi parameters" % (torch.__version__, millions))
    hone = side.Hone("bench_adamw", millions, side.THREADS)
    whole, parts = torch_adamw([n]), torch_adamw([n // 64] * 64)
    got = {k: [] for k in ("hone", "stream", "read", "torch, one tensor", "torch, 64 tensors")}
    for i in range(repeats + 2):
        row = hone.ask("step"), hone.ask("stream"), hone.ask("read"), whole(), parts()
        if i >= 2:
            for k, r in zip(got, row):
                got[k].append(r)
    hone.close()
    # beside other work: processor seconds of a thread stand in for seconds, as if both threads had a core
    key, threads = ("cpu", side.THREADS) if side.busy() else ("seconds", 1)
    took = {k: [r[key] / threads for r in v] for k, v in got.items()}
    med = {k: statistics.median(v) for k, v in took.items()}
    for k, bytes in zip(got, (28, 28, 16, 28, 28)):
        print("%-18s %6.3f G parameters/s %6.1f GB/s   %s: %s" % (k, n / med[k] * 1e-9, bytes * n / med[k] * 1e-9, key, side.spread(took[k])))
    best = min(med["torch, one tensor"], med["torch, 64 tensors"])
    side.verdict("AdamW against torch fused", best / med["hone"], 1.0)
    side.verdict("AdamW as a share of the memory's rate (seven streams)", med["stream"] / med["hone"], 0.8)


main()
