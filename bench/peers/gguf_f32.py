#!/usr/bin/env python3
"""gguf_f32.py MODEL OUT.gguf - a qwen2 folder as a float32 GGUF file without a vocabulary, for benchmarks with token ids only."""
import glob, json, os, sys
import numpy as np
from gguf import GGUFWriter

NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.": "attn_q.", "self_attn.k_proj.": "attn_k.", "self_attn.v_proj.": "attn_v.",
    "self_attn.o_proj.": "attn_output.", "mlp.gate_proj.": "ffn_gate.", "mlp.up_proj.": "ffn_up.", "mlp.down_proj.": "ffn_down.",
}
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def gguf_name(name):
    if name in TOP:
        return TOP[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    for ours, theirs in NAMES.items():
        if rest.startswith(ours):
            return "blk.%s.%s" % (layer, rest.replace(ours, theirs, 1))
    sys.exit("no GGUF name for " + name)


def tensors(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        data = np.memmap(path, dtype=np.uint8, mode="r")
        n = int(data[:8].view("<u8")[0])
        for name, t in json.loads(bytes(data[8:8 + n])).items():
            if name != "__metadata__":
                a, b = t["data_offsets"]
                assert t["dtype"] == "F32", t["dtype"]
                yield name, np.frombuffer(data[8 + n + a:8 + n + b], dtype="<f4").reshape(t["shape"])


def convert(folder, out):
    c = json.load(open(os.path.join(folder, "config.json")))
    assert c["model_type"] == "qwen2"
    w = GGUFWriter(out, "qwen2")
    w.add_name("random")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_rope_freq_base(c.get("rope_theta") or c["rope_parameters"]["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("no_vocab")
    w.add_file_type(0)
    for name, x in tensors(folder):
        w.add_tensor(gguf_name(name), x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    convert(sys.argv[1], sys.argv[2])
