"""bf16_reference.py MODEL_DIR... - how far transformers in bfloat16 on a GPU is from the float32 reference values of a model folder.

Writes MODEL_DIR/bf16.json: the mean error of log-probs, entropies and logits without the worst tenth, and the norm of the gradients' error
over the gradients' norm.  Without the worst tenth, since where two experts are nearly equal a bit decides which is taken, for another token in
each program.  `hone verify --device cuda`
allows 1.25 times as much."""
import json, sys
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

device = "cuda" if torch.cuda.is_available() else "cpu"


def opened(folder):
    how = dict(dtype=torch.bfloat16, attn_implementation="eager")
    if "vision_config" not in json.load(open(f"{folder}/config.json")):
        return AutoModelForCausalLM.from_pretrained(folder, **how).to(device)
    return AutoModelForImageTextToText.from_pretrained(folder, config=AutoConfig.from_pretrained(f"{folder}/config_v5.json"), **how).to(device)


def features(found):
    """What a tower gives for several pictures, in a shape that differs between versions of transformers: one tensor."""
    found = getattr(found, "pooler_output", found)
    return torch.cat(list(found)) if isinstance(found, (tuple, list)) else found


def pictures(model, golden, i, errors):
    """The model's further arguments for sequence i, and the tower's own errors."""
    more = {}
    for kind, pixels in (("image", "pixel_values"), ("video", "pixel_values_videos")):
        if f"seq{i}.{pixels}" not in golden:
            continue
        more[pixels] = golden[f"seq{i}.{pixels}"].to(device, torch.bfloat16)
        more[f"{kind}_grid_thw"] = golden[f"seq{i}.{kind}_grid_thw"].long().to(device)
        want = golden.get(f"seq{i}.{kind}_embeds")
        if want is not None:
            got = features(getattr(model.model, f"get_{kind}_features")(more[pixels], more[f"{kind}_grid_thw"]))
            errors[f"{kind}_embeds"].append((got.detach().float().cpu().flatten() - want.flatten()).abs())
    if f"seq{i}.second_per_grid_ts" in golden:
        more["second_per_grid_ts"] = golden[f"seq{i}.second_per_grid_ts"].to(device)
    if f"seq{i}.position_ids" in golden:
        more["position_ids"] = golden[f"seq{i}.position_ids"].long().to(device)[:, None]
    if more:
        ids = golden[f"seq{i}.input_ids"].long()
        more["mm_token_type_ids"] = ((ids == model.config.image_token_id) + 2 * (ids == model.config.video_token_id)).to(device)[None]
    return more


def measure(folder):
    golden, grad = load_file(f"{folder}/golden.safetensors"), load_file(f"{folder}/grad.safetensors")
    model = opened(folder)
    errors = {"logprobs": [], "entropy": [], "logits": [], "image_embeds": [], "video_embeds": []}
    loss, i = 0.0, 0
    while f"seq{i}.input_ids" in golden:
        ids = golden[f"seq{i}.input_ids"].long().to(device)
        logits = model(ids[None], use_cache=False, **pictures(model, golden, i, errors)).logits[0].float()
        lp = torch.log_softmax(logits[:-1], -1)
        ent = -(lp.exp() * lp).sum(-1)
        picked = lp.gather(1, ids[1:, None])[:, 0]
        for name, got in (("logprobs", picked), ("entropy", ent), ("logits", logits)):
            want = golden.get(f"seq{i}.{name}")
            if want is not None:
                errors[name].append((got.detach().cpu().flatten() - want.flatten()).abs())
        loss = loss - (golden[f"seq{i}.weights"].to(device) * picked).sum()
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
        now = name.replace("visual.", "model.visual.", 1) if name.startswith("visual.") else name.replace("model.", "model.language_model.", 1)
        if name in own or now in own:
            out[name] = own.get(name, own.get(now))
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
