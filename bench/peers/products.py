#!/usr/bin/env python3
"""products.py [avx2] [quick] [THREADS] [ROUNDS] - products, few rows and attention: hone beside torch (its BLAS, its attention) and the memory's rate.

y = x w', dx = dy w, dw += dy' x in float32, shapes from 64 rows up, as shares of the multiply-add peak measured in the same turn; each
round asks hone, then torch, some 30 ms each; medians.  1 to 8 rows times 512 MiB of weights in float32 and bf16, as a share of the rate at
which the quickest program reads: loops that only sum, torch's sum, decoding, and those products themselves.  Then causal attention of 8
heads of 64 columns, forward and backward, 1024 to 4096 tokens.  Beside other programs ratios are of processor time."""
import os, statistics, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side

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


def peer(threads):
    import torch
    torch.set_num_threads(threads)
    made = {}

    def make(what, a, b, c):
        if what == "read":
            x = torch.rand(128 << 20)
            return lambda: x.sum()
        if what[:6] != "attend":
            x, w, y, dw = torch.rand(a, b), torch.rand(c, b), torch.rand(a, c), torch.zeros(c, b)
            return {"linear": lambda: torch.mm(x, w.t(), out=y), "dx": lambda: torch.mm(y, w, out=x), "dw": lambda: dw.addmm_(y.t(), x)}[what]
        q, k, v = (torch.rand(1, a, c, b, requires_grad=True) for _ in range(3))
        g = torch.rand(1, a, c, b)
        forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if what == "attend":
            return forward
        o = forward()
        return lambda: torch.autograd.grad(o, (q, k, v), g, retain_graph=True)

    def answer(words):
        key = (words[0], *map(int, words[1:]))
        if key not in made:
            made.clear()
            made[key] = make(*key)
        return turns(made[key])
    side.serve(answer, torch=torch.__version__, set=torch.backends.cpu.get_cpu_capability())


def products(hone, torch, rounds):
    by, shares, ratios, dws = "cpu" if side.busy() else "seconds", {"hone": [], "torch": []}, [], []
    for shape in SHAPES[::7] if side.QUICK else SHAPES:
        line = "%5d x %4d x %4d" % shape
        for what in ("linear", "dx", "dw"):
            gflop, got = 2e-9 * shape[0] * shape[1] * shape[2], []
            for _ in range(rounds):
                h, t = hone.ask(what, *shape), torch.ask(what, *shape)
                got.append(tuple(100 * gflop * (side.THREADS if by == "cpu" else 1) / x[by] / h["peak"] for x in (h, t)))
            ours, theirs = (statistics.median(g[i] for g in got) for i in (0, 1))
            ratio = statistics.median(g[0] / g[1] for g in got)
            shares["hone"].append(ours), shares["torch"].append(theirs), ratios.append(ratio)
            dws += [(ratio, shape, got)] if what == "dw" else []
            line += "   %s %3.0f / %3.0f  %.2f x" % (what, ours, theirs, ratio)
        print(line, flush=True)
    for k, v in shares.items():
        print("%s: %.0f to %.0f %% of the peak, median %.0f, %d of %d at 80 or more" % (k, min(v), max(v), statistics.median(v), sum(s >= 80 for s in v), len(v)))
    print("hone's rate over torch's: %.2f to %.2f x, median %.2f" % (min(ratios), max(ratios), statistics.median(ratios)))
    side.row("products, median of %d" % len(ratios), shares["hone"], shares["torch"], "% of peak", 1.0, "torch %s with %s" % (torch.told["torch"], torch.told["set"]), rate=True)
    low = sum(d[0] < 0.9 for d in dws)
    _, shape, got = min(dws)
    side.row("dw, the worst of %d shapes, %d x %d x %d; %d below 0.9" % (len(dws), *shape, low), *zip(*got), "% of peak", 0.9, "torch", rate=True)


def few(hone, torch, rounds):
    """The rate of weights, 1 to 8 rows; the yardstick is the quickest that anything reads."""
    rates, loop, summed = {}, [], []
    for _ in range(rounds):
        for what in ("few", "few16"):
            for rows in (1, 2, 4, 8):
                got = hone.ask(what, rows, 0, 0)
                rates.setdefault((what, rows), []).append(got["gb_s"]), loop.append(got["read"])
        summed.append(0.5 / torch.ask("read", 0, 0, 0)["seconds"] * 1.073741824)
    side.reads("a loop that sums", statistics.median(loop)), side.reads("torch's sum", statistics.median(summed))
    for (what, rows), r in rates.items():
        best = side.reads("%d rows, %s" % (rows, {"few": "float32", "few16": "bf16"}[what]), statistics.median(r))
    for what, name in (("few", "float32"), ("few16", "bf16")):
        for rows in (1, 2, 4, 8):
            r = rates[what, rows]
            side.row("few rows, %s, %d" % (name, rows), r, [best] * len(r), "GB/s", 0.7, "quickest reader", rate=True)


def attention(hone, torch, rounds):
    took = {}
    for length in (1024, 2048, 4096):
        line = "8 heads of 64, %d tokens" % length
        for what in ("attend", "attend_bwd"):
            got = [tuple(map(side.seconds, (hone.ask(what, 8, 64, length), torch.ask(what, 8, 64, length)))) for _ in range(rounds)]
            took[what, length] = got
            h, p = map(statistics.median, zip(*got))
            line += "   %s %.1f / %.1f ms  %.2f x" % (what, 1e3 * h, 1e3 * p, p / h)
        print(line, flush=True)
    for what in ("attend", "attend_bwd"):
        grew = [[b / a for a, b in zip(*(list(zip(*took[what, n]))[i] for n in (2048, 4096)))] for i in (0, 1)]
        side.row("%s, times from 2048 to 4096 tokens" % {"attend": "attention", "attend_bwd": "attention backward"}[what], *grew, "x", 1.0, "torch")


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(int(sys.argv[2]))
    side.THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rounds = side.rounds(int(sys.argv[2]) if len(sys.argv) > 2 else 5)
    side.heading()
    hone, torch = side.Hone("bench_turns", side.THREADS), side.Peer(__file__, side.THREADS, env=side.surroundings("glibc"))
    print("per cent of the peak: hone / torch, and hone's rate over torch's")
    products(hone, torch, rounds)
    few(hone, torch, rounds)
    attention(hone, torch, rounds)
    hone.close(), torch.close()


main()
