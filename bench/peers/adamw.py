#!/usr/bin/env python3
"""adamw.py [avx2] [quick] [MILLIONS] [ROUNDS] - AdamW: hone beside torch's fused CPU AdamW, and as a share of the memory's rate.

Float32, two threads each, in turns; 128 Mi parameters (2 GiB of state) by default, far beyond the caches.  The memory's rate
is that of the same seven streams (read w, m, v, g; write w, m, v) with one addition each, in the same run.  torch also as it
is met in training: many tensors of the shapes of a model, in one step; its malloc is the best of three."""
import os, statistics, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side


def peer(n, parts):
    import torch
    torch.set_num_threads(side.THREADS)
    ps = []
    for _ in range(parts):
        p = torch.nn.Parameter((torch.arange(n // parts, dtype=torch.float32) % 1999) / 1999 - 0.5)
        p.grad = 1e-3 * p.detach().clone()
        ps.append(p)
    opt = torch.optim.AdamW(ps, lr=1e-4, weight_decay=0.01, fused=True)
    side.serve(lambda words: opt.step() and {}, torch=torch.__version__, set=torch.backends.cpu.get_cpu_capability())


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(int(sys.argv[2]), int(sys.argv[3]))
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 16 if side.QUICK else 128
    rounds = side.rounds(int(sys.argv[2]) if len(sys.argv) > 2 else 11)
    n = millions * 1024 * 1024
    side.heading()
    ways = ["%d tensors, %s" % (parts, malloc) for malloc in side.MALLOCS for parts in (1, 64)]
    def start(way):
        parts, _, malloc = way.split(" ", 2)
        return side.Peer(__file__, n, parts, env=side.surroundings(malloc))
    way, p = side.best("AdamW", ways, start, lambda p: min(side.seconds(p.ask("step")) for _ in range(4)))
    hone = side.Hone("bench_adamw", millions, side.THREADS)
    got = {k: [] for k in ("hone", "stream", "read", "torch")}
    for i in range(rounds + 2):
        turn = hone.ask("step"), hone.ask("stream"), hone.ask("read"), p.ask("step")
        for k, r in zip(got, turn if i >= 2 else ()):
            got[k].append(side.seconds(r))
    hone.close(), p.close()
    for k, bytes in zip(got, (28, 28, 16, 28)):
        t = statistics.median(got[k])
        print("  %-8s %6.3f G parameters/s %6.1f GB/s, seconds: %s" % (k, n / t * 1e-9, bytes * n / t * 1e-9, side.spread(got[k])))
    if not side.busy():
        side.reads("summing four arrays", 16e-9 * n / statistics.median(got["read"]))
    side.row("AdamW, %d Mi parameters" % millions, got["hone"], got["torch"], "s", 1.0, "torch %s fused with %s, %s" % (p.told["torch"], p.told["set"], way))
    side.row("AdamW beside the same seven streams", got["hone"], got["stream"], "s", 0.8, "memory")


main()
