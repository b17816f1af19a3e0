#!/usr/bin/env python3
"""products.py [THREADS] [ROUNDS] - matrix products: hone beside torch (its BLAS), as shares of the multiply-add peak measured in the same turn.

y = x w', dx = dy w, dw += dy' x in float32, shapes from 64 rows up; each round asks hone, then torch, some 30 ms each; medians."""
import os, statistics, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side
THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
side.THREADS = THREADS
side.two_threads()
import torch

SHAPES = [(64, 256, 256), (64, 256, 768), (64, 1024, 1024), (64, 2048, 2048), (64, 4096, 4096), (512, 256, 256), (512, 256, 768),
          (512, 1024, 1024), (512, 2048, 2048), (512, 4096, 1024), (2048, 256, 512), (2048, 384, 256), (8192, 128, 128), (64, 256, 96), (64, 96, 256)]


def torch_call(what, M, I, O):
    x, w, y, dw = torch.rand(M, I), torch.rand(O, I), torch.rand(M, O), torch.zeros(O, I)
    call = {"linear": lambda: torch.mm(x, w.t(), out=y), "dx": lambda: torch.mm(y, w, out=x), "dw": lambda: dw.addmm_(y.t(), x)}[what]

    def turn():
        took, end = [], time.perf_counter() + 0.03
        while len(took) < 3 or time.perf_counter() < end:
            t = time.perf_counter()
            call()
            took.append(time.perf_counter() - t)
        return statistics.median(took)
    return turn


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    torch.set_num_threads(THREADS)
    side.load_note()
    print("torch %s, %d thread(s); per cent of the peak: hone / torch, and hone's rate over torch's" % (torch.__version__, THREADS))
    hone = side.Hone("bench_turns", THREADS)
    shares, ratios = {"hone": [], "torch": []}, []
    for M, I, O in SHAPES:
        line = "%5d x %4d x %4d" % (M, I, O)
        for what in ("linear", "dx", "dw"):
            gflop, peer, got = 2e-9 * M * I * O, torch_call(what, M, I, O), []
            for _ in range(rounds):
                h = hone.ask(what, M, I, O)
                got.append((100 * gflop / h["seconds"] / h["peak"], 100 * gflop / peer() / h["peak"]))
            ours, theirs = (statistics.median(g[i] for g in got) for i in (0, 1))
            ratio = statistics.median(g[0] / g[1] for g in got)
            shares["hone"].append(ours), shares["torch"].append(theirs), ratios.append(ratio)
            line += "   %s %3.0f / %3.0f  %.2f x" % (what, ours, theirs, ratio)
        print(line, flush=True)
    hone.close()
    for k, v in shares.items():
        print("%s: %.0f to %.0f %% of the peak, median %.0f, %d of %d at 80 or more" % (k, min(v), max(v), statistics.median(v), sum(s >= 80 for s in v), len(v)))
    print("hone's rate over torch's: %.2f to %.2f x, median %.2f" % (min(ratios), max(ratios), statistics.median(ratios)))


main()
