#!/usr/bin/env python3
"""transformers_models.py - what hone writes, opened by transformers, computes what hone computes.

    python3 -m venv V && V/bin/pip install torch transformers
    V/bin/python bench/peers/transformers_models.py build/hone [RUN]

Every text model of tests/data/models converted to f32 and to bf16, and random models of dimensions that no published one has:
log-probs of random sequences by both.  RUN, a folder that ./quickstart has left, adds greedy answers of its exported model."""
import json, os, random, subprocess, sys, tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch, transformers

torch.set_num_threads(1)
hone, run = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
work = tempfile.mkdtemp()
passed = failed = skipped = 0
TOLERANCE = 2e-5    # float32 both sides, other orders of summation; the worst seen is 5e-6

COMMON = dict(rms_norm_eps=1e-6, rope_theta=10000, max_position_embeddings=4096, hidden_act="silu", initializer_range=0.2,
              torch_dtype="float32", bos_token_id=1, eos_token_id=2)
MLA = dict(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", scoring_func="sigmoid", topk_method="noaux_tc",
           norm_topk_prob=True, first_k_dense_replace=1, tie_word_embeddings=False)
OTHER = {
    "12 experts of which 3, 6 heads, a dense layer in the middle, 131 words": dict(
        COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=40, num_hidden_layers=3, vocab_size=131,
        num_attention_heads=6, num_key_value_heads=2, head_dim=10, intermediate_size=52, moe_intermediate_size=18, num_experts=12,
        num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1], decoder_sparse_step=1, tie_word_embeddings=False),
    "MLA, 6 heads, v_head_dim 10 beside 14, two shared experts, 97 words": dict(
        COMMON, **MLA, hidden_size=36, num_hidden_layers=3, vocab_size=97, num_attention_heads=6, num_key_value_heads=6,
        intermediate_size=44, moe_intermediate_size=22, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=2, n_group=4,
        topk_group=2, routed_scaling_factor=1.7, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=14, qk_rope_head_dim=6, v_head_dim=10),
    "MLA without q-lora, v_head_dim 20 beside 12, one group": dict(
        COMMON, **MLA, hidden_size=48, num_hidden_layers=4, vocab_size=203, num_attention_heads=3, num_key_value_heads=3,
        intermediate_size=60, moe_intermediate_size=14, n_routed_experts=10, num_experts_per_tok=4, n_shared_experts=1, n_group=1,
        topk_group=1, routed_scaling_factor=2.5, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20),
    "qwen2, tied, 5 heads on one, 259 words": dict(
        COMMON, architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=60, num_hidden_layers=2, vocab_size=259,
        num_attention_heads=5, num_key_value_heads=1, intermediate_size=33, tie_word_embeddings=True),
    "qwen3, heads wider than the model, 77 words": dict(
        COMMON, architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=24, num_hidden_layers=2, vocab_size=77,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, intermediate_size=50, tie_word_embeddings=True),
    "mixtral, 5 experts of which 2, 111 words": dict(
        COMMON, architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=36, num_hidden_layers=2, vocab_size=111,
        num_attention_heads=6, num_key_value_heads=3, intermediate_size=29, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=None, tie_word_embeddings=False),
}


def check(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what, flush=True)


def call(*args):
    p = subprocess.run([hone, *args], capture_output=True, text=True)
    if p.returncode:
        print("FAILED: hone", *args, ":", p.stderr.strip())
    return p.returncode == 0


def scores(model, sequences):
    path = os.path.join(work, "in")
    with open(path, "w") as f:
        f.writelines(json.dumps({"tokens": s}) + "\n" for s in sequences)
    if not call("score", model, "--in", path, "--out", path + ".out"):
        return None
    return [json.loads(line)["logprobs"] for line in open(path + ".out")]


def config_of(folder):
    return json.load(open(os.path.join(folder, "config.json")))


def theirs(folder):
    kind = transformers.AutoModelForImageTextToText if "vision_config" in config_of(folder) else transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()


def compare(what, folder, ours=None):
    """log-probs of random sequences by transformers over 'folder' and by hone over 'ours', or the same folder"""
    c = config_of(folder)
    seen = {v for k, v in c.items() if k.startswith(("image_", "video_", "vision_")) and k.endswith("_token_id")}  # stand for pictures
    ids = [i for i in range(c["vocab_size"]) if i not in seen]
    rng = random.Random(3)
    sequences = [[rng.choice(ids) for _ in range(n)] for n in (2, 17, 64)]
    got, model, worst = scores(ours or folder, sequences), theirs(folder), 0.0
    if got is None:
        return check(False, what)
    with torch.no_grad():
        for s, lp in zip(sequences, got):
            logits = model(torch.tensor([s])).logits[0, :-1]
            want = torch.log_softmax(logits, -1).gather(1, torch.tensor(s[1:])[:, None])[:, 0]
            worst = max(worst, (want - torch.tensor(lp)).abs().max().item())
    check(worst <= TOLERANCE, f"{what}: log-probs differ by {worst:.2g}")
    print(f"{what}: largest difference {worst:.2g}", flush=True)


for name in sorted(os.listdir("tests/data/models")):
    source = os.path.join("tests/data/models", name)
    if name == "qwen2_5_vl":
        continue
    for dtype in ("f32", "bf16"):
        out = os.path.join(work, f"{name}-{dtype}")
        if not call("convert", source, out, "--dtype", dtype):
            check(False, name)
            continue
        check("quantization_config" not in json.load(open(os.path.join(out, "config.json"))), f"{name}: quantization_config is still there")
        compare(f"{name} as {dtype}", out, source if dtype == "f32" else None)

for what, config in OTHER.items():
    folder = tempfile.mkdtemp(dir=work)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    out = os.path.join(folder, "model")
    if call("random", os.path.join(folder, "config.json"), out, "--seed", "5"):
        compare(what, out)
    else:
        check(False, what)

if run and os.path.isdir(os.path.join(run, "better")):
    better, out = os.path.join(run, "better"), os.path.join(work, "greedy")
    with open(out + ".in", "w") as f:
        f.writelines(json.dumps({"messages": json.loads(line)["prompt"]}) + "\n" for line in list(open(os.path.join(run, "held_out.jsonl")))[:40])
    check(call("generate", better, "--in", out + ".in", "--out", out, "--greedy", "--max-tokens", "8"), "generating")
    model, equal, n = theirs(better), 0, 0
    with torch.no_grad():
        for line in open(out):
            a = json.loads(line)
            ids, p = a["tokens"], a["prompt_length"]
            best = model(torch.tensor([ids])).logits[0, p - 1:-1].argmax(-1).tolist()
            equal, n = equal + (best == ids[p:]), n + 1
    check(n == 40 and equal == n, f"greedy answers of the exported model: {equal} of {n} equal")
    print(f"greedy answers of {better}: {equal} of {n} equal")
else:
    skipped += 1
    print("skipped: no folder of ./quickstart was given")
print(f"transformers {transformers.__version__}, torch {torch.__version__}")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
