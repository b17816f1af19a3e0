#!/usr/bin/env python3
"""train_step.py [avx2] [quick] [moe|dense] [ROUNDS] [SEQSxLEN ...] - a training step of a 29 M Qwen3-MoE and a 64 M Qwen3: hone beside torch + transformers.

Forward, backward, clipping by the global norm and AdamW (torch's fused one), float32, two threads each, the same weights and
tokens, in turns.  transformers in the quickest of its ways: experts eager or grouped (its third, batched, copies the weights for every
token and does not end in minutes), layers compiled or not, and three mallocs; tried at 1 x 1024.  Losses of both are
printed: they show that the same work was done."""
import os, statistics, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side

SHAPES = ["1x512", "1x1024", "2x1024", "1x2048", "1x4096"]
MODELS = {"moe": ("moe_29m", "29 M MoE", 8192, ["grouped_mm", "grouped_mm compiled", "eager"]), "dense": ("dense_64m", "64 M dense", 16384, ["plain", "plain compiled"])}


def peer(folder, how, vocab):
    import torch, transformers
    torch.set_num_threads(side.THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    experts = how.split()[0]
    kw = {} if experts == "plain" else {"experts_implementation": experts}
    m = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa", **kw)
    m.train()
    m.config.use_cache = False
    if how.endswith("compiled"):        # one layer is compiled, and serves for all
        for layer in m.model.layers:
            layer.compile(dynamic=False)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, weight_decay=0.01, fused=True)

    def step(words):
        seqs, length = map(int, words[1].split("x"))
        ids = torch.tensor(side.tokens(seqs * length, vocab)).view(seqs, length)
        opt.zero_grad(set_to_none=True)
        loss = m(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return {"loss": loss.item(), "grad_norm": norm.item()}
    side.serve(step, torch=torch.__version__, transformers=transformers.__version__, set=torch.backends.cpu.get_cpu_capability())


def trial(p):
    """A way that computes no number (layers compiled for AVX2 do in torch 2.15) is none."""
    p.ask("step", "1x1024")
    took = [p.ask("step", "1x1024") for _ in range(side.rounds(2))]
    if any(t["loss"] != t["loss"] for t in took):
        raise RuntimeError("its loss is not a number")
    return min(map(side.seconds, took))


def measure(name, rounds, shapes):
    config, title, vocab, hows = MODELS[name]
    folder = side.model(os.path.join(side.ROOT, "bench", "models", config + ".json"), os.path.join(side.TMP, "hone-bench-" + config))
    start = lambda malloc, how: side.Peer(__file__, folder, how, vocab, env=side.surroundings(malloc))
    how, _ = side.best(title, hows, lambda how: start("glibc", how), trial, go_on=False)
    malloc, p = side.best(title + ", malloc", list(side.MALLOCS), lambda malloc: start(malloc, how), trial)
    print("  torch %(torch)s with %(set)s, transformers %(transformers)s" % p.told)
    for shape in shapes:
        hone = side.Hone("bench_train_step", folder, *shape.split("x"), side.THREADS)
        a, b = hone.ask("step"), p.ask("step", shape)
        print("  %s %s, first step: hone loss %.6f norm %.5f, transformers (its weights have moved) %.6f, %.5f" % (title, shape, a["loss"], a["grad_norm"], b["loss"], b["grad_norm"]))
        ours, theirs = zip(*((hone.ask("step"), p.ask("step", shape)) for _ in range(rounds)))
        hone.close()
        side.row("training step, %s, %s" % (title, shape), list(map(side.seconds, ours)), list(map(side.seconds, theirs)), "s", 1.3 if shape == "1x4096" else 1.5,
                 "%s, %s" % (how, malloc), or_share=(statistics.median(x["share"] for x in ours), 0.8))
    p.close()


def main():
    if sys.argv[1:2] == ["peer"]:
        return peer(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    names = [m for m in MODELS if side.taken(m)] or list(MODELS)
    rounds = side.rounds(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    side.heading()
    for name in names:
        measure(name, rounds, sys.argv[2:] or SHAPES[:2 if side.QUICK else None])


main()
