#!/usr/bin/env python3
"""train_step.py [REPEATS] - a training step of a 29 M-parameter Qwen3-MoE, 4 x 512 tokens: hone beside torch + transformers.

Forward, backward, clipping by the global norm and AdamW (torch's fused one), float32, two threads each, the same weights and
tokens, in turns.  transformers runs with eager and with grouped experts; the
quicker way counts (its third, batched, copies the weights for every token and does not end in minutes).  Losses of both are
printed: they show that the same work was done."""
import os, statistics, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side
side.two_threads()
import torch, transformers
from transformers import AutoModelForCausalLM

SEQS, LEN = 4, 512


class Torch:
    def __init__(self, folder, experts, vocab):
        kw = {"experts_implementation": experts} if experts else {}
        self.m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa", **kw)
        self.m.train()
        self.m.config.use_cache = False
        self.opt = torch.optim.AdamW(self.m.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        self.ids = torch.tensor(side.tokens(SEQS * LEN, vocab)).view(SEQS, LEN)

    def step(self):
        t0, c0 = time.perf_counter(), time.process_time()
        self.opt.zero_grad(set_to_none=True)
        loss = self.m(input_ids=self.ids, labels=self.ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.m.parameters(), 1.0)
        self.opt.step()
        return {"seconds": time.perf_counter() - t0, "cpu": time.process_time() - c0, "loss": loss.item(), "grad_norm": norm.item()}


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.set_num_threads(side.THREADS)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    side.load_note()
    folder = side.model(os.path.join(side.ROOT, "bench", "models", "moe_29m.json"), os.path.join(tempfile.gettempdir(), "hone-bench-moe"))
    print("torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    hone, peers = side.Hone("bench_train_step", folder, SEQS, LEN, side.THREADS), {}
    for experts in ("eager", "grouped_mm"):
        try:
            p = Torch(folder, experts, 8192)
            first = [p.step() for _ in range(2)]
            peers[experts] = p
            print("  transformers, %s experts: second step %.3f s, loss %.6f" % (experts, first[1]["seconds"], first[0]["loss"]), flush=True)
        except Exception as e:
            print("  transformers, %s experts: %s" % (experts, str(e).split("\n")[0][:100]))
    trial = {k: min(p.step()["seconds"] for _ in range(2)) for k, p in peers.items()}
    best = min(trial, key=trial.get)
    peer = Torch(folder, best, 8192)
    peers.clear()
    ours, theirs, cpu = [], [], []
    for i in range(repeats + 2):
        a, b = hone.ask("step"), peer.step()
        if i == 0:
            print("  first step: hone loss %.6f norm %.5f, transformers loss %.6f norm %.5f" % (a["loss"], a["grad_norm"], b["loss"], b["grad_norm"]))
        if i >= 2:
            ours.append(a["seconds"])
            theirs.append(b["seconds"])
            cpu.append((a["cpu"], b["cpu"]))
    hone.close()
    print("hone          s/step: " + side.spread(ours))
    print("transformers  s/step: " + side.spread(theirs) + " (%s experts)" % best)
    print("hone %.0f tokens/s, transformers %.0f tokens/s" % (SEQS * LEN / statistics.median(ours), SEQS * LEN / statistics.median(theirs)))
    mine, peers_cpu = (statistics.median(x) for x in zip(*cpu))
    print("processor seconds a step: hone %.3f, transformers %.3f: %.2f x" % (mine, peers_cpu, peers_cpu / mine))
    side.verdict("training step, 29 M Qwen3-MoE, %d x %d tokens" % (SEQS, LEN), statistics.median(theirs) / statistics.median(ours), 1.5)


main()
