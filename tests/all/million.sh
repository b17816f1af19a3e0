#!/bin/bash
# million.sh - one million tokens sampled and scored, over the reference models and random ones of realistic shape, every family:
# batches of 1 to 512, with and without preemption, prefix hits, chunked prefill.  The number that counts is 0: log-probs and
# entropies that are not the same float in `hone generate` and `hone score`.
#   bash tests/all/million.sh build/hone [DIR]
hone=$1
passed=0 failed=0 skipped=0 total=0 differ=0 preempted=0 shared=0 forks=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }

prompts() { # prompts VOCAB N SEED: lines of random token ids, two in three with a common beginning of 40
    awk -v v="$1" -v n="$2" -v seed="$3" 'BEGIN { srand(seed); for (i = 0; i < n; i++) { len = 1 + int(rand() * 90); s = "";
        for (k = 0; k < len; k++) s = s (k ? "," : "") (i % 3 && k < 40 ? (k * 7 + 3) % v : int(rand() * v));
        print "{\"tokens\":[" s "],\"id\":" i "}" } }'
}
compare() { # lines of the two files in turn: values that differ, values
    paste -d '\n' "$1" "$2" | awk '
        function list(line, name, out,   s) { if (!match(line, "\"" name "\":\\[[^]]*\\]")) return -1; s = substr(line, RSTART + length(name) + 4, RLENGTH - length(name) - 5); return split(s, out, ",") }
        NR % 2 { gen = $0; next }
        { for (f = 0; f < 2; f++) { n = list(gen, f ? "entropy" : "logprobs", a); m = list($0, f ? "entropy" : "logprobs", b)
            if (n < 1 || m < n) { bad++; continue }
            for (i = 1; i <= n; i++) { if (!f) values++; bad += a[i] != b[m - n + i] } } }
        END { print bad + 0, values + 0 }'
}
# prompts, answers each, tokens each (of the reference models | of the larger random ones) | generate's options | options of both
plans=(
    "4 1 128|4 1 64|--max-batch 1 --page 64 --threads 2|"
    "16 4 128|16 2 64|--max-batch 16 --page 16 --max-rows 33 --threads 1|--top-p 0.9 --temperature 0.8"
    "16 8 128|16 8 64|--max-batch 64 --page 48 --kv-tokens 2400 --threads 2|--top-k 50 --temperature 1.2"
    "64 8 128|64 8 48|--max-batch 512 --page 64 --max-rows 2048 --threads 1|"
)
one_model() { # one_model NAME FOLDER VOCAB SIZE: 1 or 2 of a plan
    local i got
    for i in "${!plans[@]}"; do
        IFS='|' read -r small large shape draw <<<"${plans[$i]}"
        read -r n k max <<<"$([ "$4" = 1 ] && echo "$small" || echo "$large")"
        prompts "$3" "$n" "$i" >"$work/in"
        "$hone" generate "$2" --in "$work/in" --out "$work/gen" --n "$k" --max-tokens "$max" --ignore-eos --seed 3 --stats $shape $draw 2>"$work/stats" &&
            "$hone" score "$2" --in "$work/gen" --out "$work/score" --threads 1 $draw
        ok $? "$1, plan $i: exit code; $(tail -1 "$work/stats")"
        got=$(compare "$work/gen" "$work/score")
        [ "${got% *}" = 0 ]
        ok $? "$1, plan $i: $got (values that differ, tokens)"
        differ=$((differ + ${got% *})) total=$((total + ${got#* }))
        read -r f s p <<<"$(sed -E 's/.* ([0-9]+) forks, ([0-9]+) tokens found in the cache, ([0-9]+) preempted.*/\1 \2 \3/' "$work/stats" | tail -1)"
        forks=$((forks + f)) shared=$((shared + s)) preempted=$((preempted + p))
    done
    echo "$1: $total tokens so far, $differ values differ ($SECONDS s)"
}
for f in llama qwen2 qwen3 qwen3_moe qwen3_moe_plain mixtral deepseek_v3 moonlight deepseek_v3_yarn; do
    one_model "$f" "tests/data/models/$f" "$(grep -oE '"vocab_size": *[0-9]+' "tests/data/models/$f/config.json" | grep -oE '[0-9]+$')" 1
done

base='"rms_norm_eps":1e-6,"rope_theta":10000,"max_position_embeddings":4096,"hidden_act":"silu","initializer_range":0.06,"torch_dtype":"float32"'
moe='"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[]'
mla='"n_shared_experts":1,"n_group":4,"topk_group":2,"routed_scaling_factor":2.0,"norm_topk_prob":true,"scoring_func":"sigmoid","topk_method":"noaux_tc","first_k_dense_replace":1'
random_model() { # random_model NAME VOCAB CONFIG
    mkdir "$work/c"
    echo "{$3,\"vocab_size\":$2,$base}" >"$work/c/config.json"
    "$hone" random "$work/c/config.json" "$work/m" --seed 1 >/dev/null
    ok $? "$1: no random model"
    one_model "random $1" "$work/m" "$2" 2
    rm -rf "$work/c" "$work/m"
}
random_model llama 32000 '"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":256,"num_hidden_layers":12,"num_attention_heads":8,"num_key_value_heads":2,"intermediate_size":688,"tie_word_embeddings":false'
random_model qwen2 15003 '"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":384,"num_hidden_layers":8,"num_attention_heads":6,"num_key_value_heads":2,"intermediate_size":1024,"tie_word_embeddings":true'
random_model qwen3 9001 '"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":320,"num_hidden_layers":10,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":64,"intermediate_size":832,"tie_word_embeddings":true'
random_model qwen3_moe 12000 '"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","hidden_size":256,"num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":32,"intermediate_size":512,"moe_intermediate_size":128,"num_experts":32,"num_experts_per_tok":4,"tie_word_embeddings":false,'"$moe"
random_model mixtral 8000 '"architectures":["MixtralForCausalLM"],"model_type":"mixtral","hidden_size":256,"num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":4,"intermediate_size":448,"num_local_experts":8,"num_experts_per_tok":2,"sliding_window":null,"tie_word_embeddings":false'
random_model deepseek_v3 10000 '"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":256,"num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":640,"moe_intermediate_size":128,"n_routed_experts":32,"num_experts_per_tok":4,"q_lora_rank":96,"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":32,"tie_word_embeddings":false,'"$mla"
random_model moonlight 5003 '"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":256,"num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":640,"moe_intermediate_size":128,"n_routed_experts":16,"num_experts_per_tok":3,"q_lora_rank":null,"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":32,"tie_word_embeddings":false,'"$mla"

[ "$total" -ge 1000000 ]
ok $? "only $total tokens"
[ $preempted -gt 0 ] && [ $shared -gt 0 ] && [ $forks -gt 0 ]
ok $? "$preempted preempted, $shared tokens found in the cache, $forks forks: this proof saw too little"
echo "$total tokens sampled and scored: $differ values differ; $forks forks, $shared tokens found in the cache, $preempted preempted ($SECONDS s)"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
