"""bf16_reference.py MODEL_DIR... - how far transformers in bfloat16 on a GPU is from the float32 reference values of a model folder.

Writes MODEL_DIR/bf16.json: the mean error of log-probs, entropies and logits without the worst tenth, and the norm of the gradients' error
over the gradients' norm.  Without the worst tenth, since where two experts are nearly equal a bit decides which is taken, for another token in
each program.  `hone verify --device cuda`
allows 1.25 times as much."""
import json, sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def measure(folder):
    golden, grad = load_file(f"{folder}/golden.safetensors"), load_file(f"{folder}/grad.safetensors")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").cuda()
    errors = {"logprobs": [], "entropy": [], "logits": []}
    loss, i = 0.0, 0
    while f"seq{i}.input_ids" in golden:
        ids = golden[f"seq{i}.input_ids"].long().cuda()
        logits = model(ids[None], use_cache=False).logits[0].float()
        lp = torch.log_softmax(logits[:-1], -1)
        ent = -(lp.exp() * lp).sum(-1)
        picked = lp.gather(1, ids[1:, None])[:, 0]
        for name, got in (("logprobs", picked), ("entropy", ent), ("logits", logits)):
            want = golden.get(f"seq{i}.{name}")
            if want is not None:
                errors[name].append((got.detach().cpu().flatten() - want.flatten()).abs())
        loss = loss - (golden[f"seq{i}.weights"].cuda() * picked).sum()
        i += 1
    loss.backward()
    wrong = whole = 0.0
    for name, p in hub_gradients(model, grad).items():
        want = grad[name].double()
        wrong += (p.double().cpu() - want).square().sum().item()
        whole += want.square().sum().item()
    out = {name: torch.cat(e).double().sort().values[: len(torch.cat(e)) * 9 // 10].mean().item() for name, e in errors.items() if e}
    out["gradients"] = (wrong / whole) ** 0.5
    return out


def hub_gradients(model, grad):
    """Gradients under the names of the files: experts that this version of transformers stacks are taken apart."""
    own = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    out = {}
    for name in grad:
        if name in own:
            out[name] = own[name]
            continue
        if ".experts." not in name:
            continue
        head, tail = name.split(".experts.")
        number, which = tail.split(".")[0], tail.split(".")[1]
        stacked = own.get(f"{head.replace('block_sparse_moe', 'mlp')}.experts.gate_up_proj"), own.get(f"{head.replace('block_sparse_moe', 'mlp')}.experts.down_proj")
        if stacked[0] is None:
            continue
        both, down = stacked[0][int(number)], stacked[1][int(number)]
        half = both.shape[0] // 2
        part = {"gate_proj": both[:half], "w1": both[:half], "up_proj": both[half:], "w3": both[half:], "down_proj": down, "w2": down}[which]
        if part.shape == grad[name].shape:
            out[name] = part
    return out


for folder in sys.argv[1:]:
    try:
        found = measure(folder)
        json.dump(found, open(f"{folder}/bf16.json", "w"))
        print(folder, json.dumps(found))
    except Exception as e:
        print(folder, "failed:", repr(e)[:300])
