#!/usr/bin/env python3
"""products.py [avx2] [THREADS] [ROUNDS] - products and attention: hone beside torch (its BLAS, its attention).

y = x w', dx = dy w, dw += dy' x in float32, shapes from 64 rows up, as shares of the multiply-add peak measured in the same turn; each
round asks hone, then torch, some 30 ms each; medians.  Then causal attention of 8 heads of 64 columns, forward and backward, 1024 to 4096
tokens.  avx2: both held to that set.  Beside other programs ratios are of processor time."""
import os, statistics, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side
ISA = side.lower(sys.argv)
THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
side.THREADS = THREADS
side.two_threads()
import torch

SHAPES = [(64, 256, 256), (64, 256, 768), (64, 1024, 1024), (64, 2048, 2048), (64, 4096, 4096), (512, 256, 256), (512, 256, 768),
          (512, 1024, 1024), (512, 2048, 2048), (512, 4096, 1024), (2048, 256, 512), (2048, 384, 256), (8192, 128, 128), (64, 256, 96), (64, 96, 256)]


def turns(call, seconds=0.03):
    """Median seconds of a call by the clock, and the least of the processor's."""
    took, cpu, end = [], [], time.perf_counter() + seconds
    while len(took) < 3 or time.perf_counter() < end:
        t, c = time.perf_counter(), time.process_time()
        call()
        took.append(time.perf_counter() - t), cpu.append(time.process_time() - c)
    return {"seconds": statistics.median(took), "cpu": min(cpu)}


def torch_call(what, M, I, O):
    x, w, y, dw = torch.rand(M, I), torch.rand(O, I), torch.rand(M, O), torch.zeros(O, I)
    call = {"linear": lambda: torch.mm(x, w.t(), out=y), "dx": lambda: torch.mm(y, w, out=x), "dw": lambda: dw.addmm_(y.t(), x)}[what]
    return lambda: turns(call)


def torch_attend(what, heads, cols, length):
    q, k, v = (torch.rand(1, heads, length, cols, requires_grad=True) for _ in range(3))
    g = torch.rand(1, heads, length, cols)
    forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    if what == "attend":
        return lambda: turns(forward)
    o = forward()
    return lambda: turns(lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True))


def attention(hone, rounds, by):
    took = {}
    for length in (1024, 2048, 4096):
        line = "8 heads of 64, %d tokens" % length
        for what in ("attend", "attend_bwd"):
            peer, ours, theirs = torch_attend(what, 8, 64, length), [], []
            for _ in range(rounds):
                ours.append(hone.ask(what, 8, 64, length)[by]), theirs.append(peer()[by])
            h, p = statistics.median(ours), statistics.median(theirs)
            took[what, length] = h, p
            line += "   %s %.1f / %.1f ms  %.2f x" % (what, 1e3 * h, 1e3 * p, p / h)
        print(line, flush=True)
    for what in ("attend", "attend_bwd"):
        grew = [took[what, 4096][i] / took[what, 2048][i] for i in (0, 1)]
        print("%s, 2048 to 4096 tokens: hone %.2f x, torch %.2f x the time" % (what, *grew))


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    torch.set_num_threads(THREADS)
    side.load_note()
    hone, by = side.Hone("bench_turns", THREADS, ISA), "cpu" if side.busy() else "seconds"
    print("torch %s with %s, hone with %s, %d thread(s), by %s; per cent of the peak: hone / torch, and hone's rate over torch's"
          % (torch.__version__, torch.backends.cpu.get_cpu_capability(), hone.ask("dw", 64, 64, 64)["isa"], THREADS, by))
    shares, ratios = {"hone": [], "torch": []}, []
    for M, I, O in SHAPES:
        line = "%5d x %4d x %4d" % (M, I, O)
        for what in ("linear", "dx", "dw"):
            gflop, peer, got = 2e-9 * M * I * O, torch_call(what, M, I, O), []
            for _ in range(rounds):
                h = hone.ask(what, M, I, O)
                got.append(tuple(100 * gflop * (THREADS if by == "cpu" else 1) / t[by] / h["peak"] for t in (h, peer())))
            ours, theirs = (statistics.median(g[i] for g in got) for i in (0, 1))
            ratio = statistics.median(g[0] / g[1] for g in got)
            shares["hone"].append(ours), shares["torch"].append(theirs), ratios.append(ratio)
            line += "   %s %3.0f / %3.0f  %.2f x" % (what, ours, theirs, ratio)
        print(line, flush=True)
    attention(hone, rounds, by)
    hone.close()
    for k, v in shares.items():
        print("%s: %.0f to %.0f %% of the peak, median %.0f, %d of %d at 80 or more" % (k, min(v), max(v), statistics.median(v), sum(s >= 80 for s in v), len(v)))
    print("hone's rate over torch's: %.2f to %.2f x, median %.2f" % (min(ratios), max(ratios), statistics.median(ratios)))


main()
