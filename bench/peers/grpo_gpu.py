#!/usr/bin/env python3
"""grpo_gpu.py CONFIG [PROMPTS ANSWERS PROMPT_TOKENS ANSWER_TOKENS STEPS] - a GRPO step as a loop over transformers does it: generate, log-probs of the
weights that sampled, loss and backward in micro-batches, fused AdamW.  Random weights, bf16; the same work as `hone train` with `rollout.ignore_eos`.
One JSON line a step.  Layers are compiled for training, where that wins; generate runs as transformers ships it (a static cache with compiled
layers is tried with COMPILE=1)."""
import json, os, sys, time
import torch, torch.nn.functional as F
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

config = json.load(open(sys.argv[1]))
prompts, answers, n_prompt, n_answer, steps = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 64), (3, 8), (4, 16), (5, 512), (6, 2)))
micro = 32
transformers.logging.set_verbosity_error()
conf = AutoConfig.for_model(config.pop("model_type"), **config)
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    m = AutoModelForCausalLM.from_config(conf, attn_implementation="sdpa")
opt = torch.optim.AdamW(m.parameters(), lr=1e-6, fused=True)
ask = torch.randint(100, conf.vocab_size - 100, (prompts, n_prompt), device="cuda").repeat_interleave(answers, 0)
how = dict(max_new_tokens=n_answer, min_new_tokens=n_answer, do_sample=True, top_k=0, pad_token_id=0)
if os.environ.get("COMPILE"):
    how.update(cache_implementation="static")


def logprobs(ids):
    h = m.model(input_ids=ids, use_cache=False).last_hidden_state[:, n_prompt - 1:-1]
    want = ids[:, n_prompt:]
    out = []
    for i in range(0, len(ids), 8):  # logits of eight answers at a time
        out.append(-F.cross_entropy(m.lm_head(h[i:i + 8]).float().flatten(0, 1), want[i:i + 8].flatten(), reduction="none").view(-1, n_answer))
    return torch.cat(out)


def clock():
    torch.cuda.synchronize()
    return time.perf_counter()


for step in range(steps):
    t0 = clock()
    m.eval()
    with torch.no_grad():
        ids = m.generate(ask, **how)
    t1 = clock()
    if step == 0:
        for l in m.model.layers:
            l.compile(dynamic=False)
    with torch.no_grad():
        old = torch.cat([logprobs(ids[i:i + micro]) for i in range(0, len(ids), micro)])
    t2 = clock()
    m.train()
    reward = (ids[:, n_prompt:] % 2).float().mean(1).view(prompts, answers)
    adv = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-6)).flatten()
    for i in range(0, len(ids), micro):
        lp = logprobs(ids[i:i + micro])
        ratio = (lp - old[i:i + micro]).exp()
        a = adv[i:i + micro, None]
        loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).sum() / old.numel()
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    t3 = clock()
    print(json.dumps({"peer": "transformers " + transformers.__version__, "step": step, "seconds": round(t3 - t0, 3), "generate": round(t1 - t0, 3),
                      "old_logprobs": round(t2 - t1, 3), "update": round(t3 - t2, 3), "grad_norm": round(norm.item(), 4),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1)}), flush=True)
