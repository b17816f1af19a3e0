"""page_run.py - makes up a run's folder as hone writes one, of any size: what the tests of `hone page` look at.
   page_run.py DIR STEPS METRICS ANSWERS_A_STEP [--hostile] [--ranks] [--offset X] [--tokens MODEL] [--every N]"""
import argparse
import json
import math
import os
import random
import struct

MAIN = ["critic/score/mean", "critic/score/max", "critic/score/min", "response_length/mean", "response_length/max",
        "response_length/min", "response_length/clip_ratio", "actor/entropy", "actor/kl_loss", "actor/ppo_kl", "actor/grad_norm",
        "actor/pg_loss", "actor/pg_clipfrac", "actor/loss", "actor/lr", "exact/max_abs_logprob_diff", "exact/tokens",
        "reward/failed_ratio", "perf/silent_ratio", "timing_s/gen", "timing_s/reward", "timing_s/adv", "timing_s/exact",
        "timing_s/update_actor", "timing_s/sync", "timing_s/other", "timing_s/step", "perf/total_num_tokens",
        "perf/throughput", "perf/mfu/actor", "perf/cpu_memory_used_gb", "training/epoch"]
HOSTILE = ["<script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "right \u202eesrever\u202c left",
           "\u2066isolate\u2069", "a\u0000b\u001b[31mred", "</script><svg onload=window.pwned=1>", "\U0001f600 &amp; <b>bold</b>",
           "'\"><a href=javascript:window.pwned=1>x</a>", "zero\u200bwidth\ufeff", "{{7*7}} ${window.pwned=1}"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("steps", type=int)
    ap.add_argument("metrics", type=int)
    ap.add_argument("answers", type=int)
    ap.add_argument("--hostile", action="store_true")
    ap.add_argument("--offset", type=float, default=0)
    ap.add_argument("--vocab", type=int, default=0, help="write samples_tokens.bin with ids below this")
    ap.add_argument("--every", type=int, default=1, help="answers only every so many steps")
    ap.add_argument("--lr", default="1.0e-6")
    o = ap.parse_args()
    os.makedirs(o.dir, exist_ok=True)
    rng = random.Random(int(o.offset * 1000) + 7)
    names = MAIN[:o.metrics] + [f"extra/{i:03d}" for i in range(o.metrics - len(MAIN))]
    with open(o.dir + "/config.yaml", "w") as f:
        f.write(f"model:\n  path: demo/model\ntrain:\n  lr: {o.lr}        # command line\n  loss: vanilla\nrollout:\n  n: 4\n  temperature: 1.0\n"
                f"trainer:\n  steps: {o.steps}\n  run_dir: {o.dir}\n")
    noise = [rng.gauss(0, 1) for _ in range(997)]
    with open(o.dir + "/metrics.jsonl", "w") as f:
        f.write('{"step":0,"val-core/score/mean":0.1,"val-aux/score/low":0.05,"val-aux/score/high":0.15}\n')
        for s in range(1, o.steps + 1):
            t, z = s / o.steps, [noise[(s * 31 + k * 17) % 997] for k in range(8)]
            score = 0.1 + o.offset + 0.7 * (1 - math.exp(-3 * t)) + 0.03 * z[0]
            gen, upd = 2 + 0.1 * z[1], 3 + 0.1 * z[2] + (5 if s % 4999 == 0 else 0)
            v = dict(zip(MAIN, [score, 1, 0, 120 + 200 * t + 9 * z[3], 512, 3, 0.02 + 0.1 * t * t, 1.2 * math.exp(-2 * t) + 0.02 * z[4],
                                0.001 * t, 0.0004 * z[5], 0.3 + 0.05 * abs(z[6]) + (9 if s % 3001 == 0 else 0), -0.01 + 0.001 * z[7], 0.01, -0.01,
                                1e-6, 0, 5000, 0.001, 0.3 + 0.3 * t, gen, 0.2, 0.01, 0.3 if s % 10 == 0 else 0, upd, 0.1, 0.05, gen + upd + 0.4,
                                60000, 11000 + 100 * z[1], 0.4, 12.5, s // 1000]))
            for i, n in enumerate(names[len(MAIN):]):
                v[n] = (i + 1) * math.sin(s / 300 + i) + 0.1 * z[i % 8]
            parts = ",".join(f'"{n}":{v[n]:.6g}' for n in names)
            if s % max(1, o.steps // 20) == 0:
                parts += f',"val-core/score/mean":{score:.4f},"val-aux/score/low":{score - .04:.4f},"val-aux/score/high":{score + .04:.4f}'
            if s == min(3, o.steps):
                parts += ',"odd/nothing":null'
            f.write(f'{{"step":{s},{parts}}}\n')
    tokens = open(o.dir + "/samples_tokens.bin", "wb") if o.vocab else None
    at = 0
    pad = "because " * 100
    with open(o.dir + "/samples.jsonl", "w") as f:
        for s in range(1, o.steps + 1):
            if s % o.every:
                continue
            for k in range(o.answers):
                row, n = s * 7 % 500 + k // 4, 5 + (s + k) % 40
                score = (s * 3 + k) % 5 / 4
                adv = (k % 4 - 1.5) / 2
                out = f"answer {k} of step {s}: {pad[:500 + 300 * (k % 2)]} #### {(s * 7 + k) % 100}"
                q = f"What is {s} plus {k}?"
                if o.hostile:
                    out, q = HOSTILE[(s + k) % len(HOSTILE)] + " " + out, HOSTILE[(s * k) % len(HOSTILE)] + q
                line = {"step": s, "row": row, "sample": k % 4, "score": score, "advantage": adv, "finish": "stop" if (s + k) % 7 else "length",
                        "tokens": n, "input": q, "output": out, "gts": str(s + k)}
                if s % 11 == 0 and k == 1:
                    line["failed"], line["reason"] = True, "the scorer said nothing"
                if s % 13 == 0 and k == 2:
                    line["turns"] = [{"role": "user", "text": q, "mask": 0}, {"role": "assistant", "text": "let me look", "mask": 1,
                                     "calls": [{"name": "search", "arguments": {"q": q}}]}, {"role": "tool", "text": out[:80], "mask": 0, "reward": 0.5},
                                     {"role": "assistant", "text": out, "mask": 1}]
                if tokens:
                    line["at"] = at
                    for i in range(n):
                        tokens.write(struct.pack("<iffBif", rng.randrange(o.vocab), -rng.expovariate(1), adv, 1, s - 1, rng.expovariate(1)))
                    at += 21 * n
                f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    with open(o.dir + "/log.txt", "w") as f:
        f.write("2026-11-19 12:00:00  a run that was made up\n")


main()
