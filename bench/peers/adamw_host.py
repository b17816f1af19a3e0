#!/usr/bin/env python3
"""adamw_host.py [MILLIONS] - torch's fused AdamW on all of this machine's cores, float32: what `hone bench optimizer --device cpu` is held against."""
import json, os, sys, time
import torch

n = int(sys.argv[1]) * 1000000 if len(sys.argv) > 1 else 300000000
torch.set_num_threads(len(os.sched_getaffinity(0)))
p = torch.nn.Parameter(torch.rand(n) - 0.5)
p.grad = 1e-3 * p.detach().clone()
opt = torch.optim.AdamW([p], lr=1e-4, weight_decay=0.01, fused=True)
t = []
for i in range(7):
    t0 = time.perf_counter()
    opt.step()
    t.append(time.perf_counter() - t0)
s = sorted(t[2:])[2]
print(json.dumps({"peer": "torch " + torch.__version__, "bench": "optimizer", "params": n, "seconds": round(s, 5), "params_per_s": n / s}))
