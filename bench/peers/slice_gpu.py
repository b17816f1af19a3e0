#!/usr/bin/env python3
"""slice_gpu.py CONFIG [LAYERS TOKENS LENGTH WHAT] - transformers on the work of `hone bench train-slice` and `logprob`: the same shapes, random
weights, bf16, layers compiled, cuDNN attention preferred, grouped experts.  One JSON line for each of WHAT, by default
logprob,none,full: log-probs alone, training without recomputation, training with full recomputation.

The head is chunked in the way that was quickest: log-probs of all tokens but the first, logits of one sequence at a time."""
import json, sys, time
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

config = json.load(open(sys.argv[1]))
layers, tokens, length = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 8), (3, 16384), (4, 4096)))
what = (sys.argv[5] if len(sys.argv) > 5 else "logprob,none,full").split(",")
config["num_hidden_layers"] = layers
transformers.logging.set_verbosity_error()
kind = config.pop("model_type")
conf = AutoConfig.for_model(kind, **config)
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    m = AutoModelForCausalLM.from_config(conf, attn_implementation="sdpa", experts_implementation="grouped_mm")
m.config.use_cache = False
n = tokens // length
x, ids = 1, []
for _ in range(tokens):
    x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
    ids.append((x >> 8) % conf.vocab_size)
ids = torch.tensor(ids, device="cuda").view(n, length)


def head(h):
    sums = []
    for i in range(n):
        logits = m.lm_head(h[i, :-1]).float()
        sums.append(F.cross_entropy(logits, ids[i, 1:], reduction="sum"))
    return torch.stack(sums).sum() / (n * (length - 1))


head = torch.compile(head, dynamic=False)
for l in m.model.layers:
    l.compile(dynamic=False)


def step():
    m.zero_grad(set_to_none=True)
    loss = head(m.model(input_ids=ids).last_hidden_state)
    loss.backward()
    return loss


def score():
    with torch.no_grad():
        return head(m.model(input_ids=ids).last_hidden_state)


def measure(what, fn, repeats=5):
    for _ in range(2):
        loss = fn()
    torch.cuda.synchronize()
    s = []
    for _ in range(repeats):
        t0 = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        s.append(time.perf_counter() - t0)
    s.sort()
    t = s[len(s) // 2]
    print(json.dumps({"peer": "transformers " + transformers.__version__, "bench": what, "seconds": round(t, 5), "least": round(s[0], 5),
                      "tokens_per_s": round(tokens / t), "loss": round(loss.item(), 4),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1)}), flush=True)


with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
    m.eval()
    if "logprob" in what:
        measure("logprob", score)
    m.train()
    if "none" in what:
        measure("train-slice, no recompute", step)
    m.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if "full" in what:
        measure("train-slice, full recompute", step)
