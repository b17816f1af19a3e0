#!/bin/bash
# traffic.sh - what `hone plan` says that ranks send each other is what they send: runs of one step on eight grids, over a
# driver and an NCCL that are the host's and count bytes (tests/shim/gpu), beside the plan of the same run; rollout,
# reference, update with its optimizer, and sync, each within 3 %.  Two machines have half of
# the ranks each.  Answers are of one length, since plans know means.
#   bash tests/cmd/traffic.sh build/hone
. tests/cmd/train_common.bash
shims=$(dirname "$hone")/shims/gpu
[ -x "$shims/hone" ] || { echo "0 passed, 0 failed, 1 skipped (build/shims/gpu was not built)"; exit 0; }
need_ranks
make_sums 12

# Each token goes to half of the experts: what is left of unevenness, of which a plan knows nothing, is small.
model() { # model NAME CONFIG
    mkdir -p "$work/$1.config"
    cp recipes/quickstart/model/tokenizer*.json "$work/$1.config"
    echo "{$2,\"vocab_size\":262,\"num_hidden_layers\":4,\"num_experts_per_tok\":4,\"norm_topk_prob\":true,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":512,\"hidden_act\":\"silu\",\"initializer_range\":0.05,\"eos_token_id\":259,\"pad_token_id\":259}" >"$work/$1.config/config.json"
    "$hone" random "$work/$1.config" "$work/$1" --seed 3 >"$work/$1.log" 2>&1 || { echo "no model: $(cat "$work/$1.log")"; exit 1; }
}
model gqa '"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","hidden_size":64,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":16,"intermediate_size":64,"moe_intermediate_size":32,"num_experts":8,"decoder_sparse_step":1,"mlp_only_layers":[1],"tie_word_embeddings":true,"attention_bias":false'
model mla '"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":64,"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":128,"moe_intermediate_size":32,"n_routed_experts":8,"n_shared_experts":1,"n_group":1,"topk_group":1,"routed_scaling_factor":1.7,"scoring_func":"sigmoid","topk_method":"noaux_tc","first_k_dense_replace":1,"q_lora_rank":32,"kv_lora_rank":24,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,"tie_word_embeddings":false'

mean() { grep -oE "\"$1/mean\":[0-9.]+" "$work/run/metrics.jsonl" | head -1 | cut -d: -f2; }
phases() { # phases < the plan as JSON: "PHASE BYTES"
    grep -oE '"(rollout|reference|update|sync)":\{"seconds":[^,]*,"bound_by":"[^"]*","sent_bytes":[^,]*' | sed -E 's/"([a-z]*)":.*"sent_bytes":/\1 /'
}
compared=0
while read -r n model grid; do
    rm -rf "$work/run" "$work"/count.*
    GPU_NODE=$((n / 2)) GPU_COUNT=$work/count GPU_DIR=$work GPU_JITTER_US=0 $(under_ranks "$n") "$shims/hone" train model.path="$work/$model" "data.train_files=[$work/sums.jsonl]" \
        data.train_batch_size=8 rollout.n=4 data.max_prompt_length=16 data.max_response_length=24 rollout.ignore_eos=true train.micro_tokens=512 train.lr=1e-3 \
        train.use_kl_loss=true trainer.threads=1 trainer.peak_tflops=0.1 trainer.device=cpu trainer.steps=1 trainer.tensorboard=false \
        reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.run_dir="$work/run" $grid >"$work/log" 2>&1 </dev/null
    ok $? "$n ranks, $model, $grid: $(tail -3 "$work/log")"
    "$hone" plan "$work/$model" --recipe "$work/run/config.yaml" --cluster "thisx$n" --prompt-mean "$(mean prompt_length)" --mean "$(mean response_length)" --spread 0 \
        --json 2>"$work/err" | phases >"$work/planned"
    # bytes counted and planned of each phase, and whether they are the same to 3 %
    awk 'FNR == NR { planned[$1] = $2; next } $1 == "sent" { counted[$3] += $4 }
        END { split("rollout reference update sync", name, " ")
            for (i = 1; i in name; i++) { c = counted[name[i]] + 0; p = planned[name[i]] + 0; d = p - c; if (d < 0) d = -d
                if (c || p) printf "%s %d %d %s\n", name[i], c, p, d <= 0.03 * c ? "same" : "other" } }' "$work/planned" "$work"/count.* >"$work/beside"
    while read -r phase counted planned is; do
        [ "$is" = same ]
        ok $? "$n ranks, $model, $grid: $phase sends $counted bytes, planned are $planned"
        compared=$((compared + 1))
        printf '%d ranks, %s, %s: %s %d bytes, planned %d\n' "$n" "$model" "$grid" "$phase" "$counted" "$planned"
    done <"$work/beside"
done <<'END'
2 mla grid.tp=2 rollout.grid.tp=2
4 gqa grid.ep=4 rollout.grid.dp=4 rollout.grid.ep=4
4 mla grid.pp=2 grid.vpp=2 rollout.grid.tp=2
4 mla grid.cp=2 grid.tp=2 rollout.grid.tp=4
4 gqa grid.cp=2 grid.tp=2 rollout.grid.tp=4 rollout.grid.ep=2
4 gqa grid.tp=2 grid.ep=2 rollout.grid.tp=4 rollout.grid.ep=4 train.recompute=full
4 mla grid.ep=2 grid.etp=2 rollout.grid.dp=4 rollout.grid.ep=2 train.weights=bf16 train.master=remainder
8 gqa grid.tp=2 grid.pp=2 grid.ep=4 rollout.grid.tp=2 rollout.grid.dp=4 rollout.grid.ep=8 train.recompute=selective
END
[ $compared -ge 28 ]
ok $? "only $compared phases were compared"
the_end
