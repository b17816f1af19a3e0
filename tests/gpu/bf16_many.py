"""bf16_many.py HONE MODEL_DIR [TOKENS] - bfloat16 of hone and of transformers against transformers in float32, over random sequences of the model's vocabulary.

The reference values of a folder are some dozens of tokens, too few for a mean of errors where experts are nearly equal: a bit decides which is taken, for
another token in each program, and one such token weighs as much as a hundred others.  Here all tokens count, none is left out: the mean error of log-probs and
entropies, its standard error over sequences, and hone's mean over transformers'."""
import json, subprocess, sys, tempfile
import torch
from transformers import AutoModelForCausalLM

hone, folder, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 65536
LENGTH = 64


def values(dtype, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").cuda()
    lps, ents = [], []
    with torch.no_grad():
        for part in ids.cuda().split(256):
            lp = torch.log_softmax(model(part, use_cache=False).logits[:, :-1].float(), -1)
            lps.append(lp.gather(2, part[:, 1:, None])[..., 0].cpu())
            ents.append(-(lp.exp() * lp).sum(-1).cpu())
    return torch.cat(lps), torch.cat(ents)


torch.backends.cuda.matmul.allow_tf32 = False
vocab = json.load(open(f"{folder}/config.json"))["vocab_size"]
ids = torch.randint(vocab, (tokens // LENGTH, LENGTH), generator=torch.Generator().manual_seed(1))
with tempfile.TemporaryDirectory() as work:
    with open(f"{work}/in.jsonl", "w") as f:
        f.writelines(json.dumps({"tokens": row}) + "\n" for row in ids.tolist())
    subprocess.run([hone, "score", folder, "--in", f"{work}/in.jsonl", "--out", f"{work}/out.jsonl", "--device", "cuda"], check=True)
    lines = [json.loads(line) for line in open(f"{work}/out.jsonl")]
ours = [torch.tensor([line[name] for line in lines]) for name in ("logprobs", "entropy")]
want, theirs = values(torch.float32, ids), values(torch.bfloat16, ids)
for name, w, t, o in zip(("logprobs", "entropy"), want, theirs, ours):
    t, o = (t - w).abs().double().mean(1), (o - w).abs().double().mean(1)
    error = lambda x: x.std().item() / len(x) ** 0.5
    print(f"{folder} {name}: hone {o.mean():.3e} +- {error(o):.0e}, transformers {t.mean():.3e} +- {error(t):.0e}, ratio {o.mean() / t.mean():.3f}", flush=True)
