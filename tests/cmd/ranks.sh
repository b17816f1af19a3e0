#!/bin/bash
# ranks.sh - hone under mpirun as a user meets it: the same bytes on any grid, one voice, and refusals that are said
# once.
#   bash tests/cmd/ranks.sh build/hone
. tests/cmd/train_common.bash
export ASAN_OPTIONS=detect_leaks=0 # what MPI keeps to its end is not a leak of ours
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
[ -f "$(dirname "$hone")/libhone_mpi.so" ] || { echo "0 passed, 0 failed, 1 skipped (libhone_mpi.so was not built)"; exit 0; }
ranks() { # ranks N VERB ARGUMENT...
    local n=$1
    shift
    mpirun --allow-run-as-root --oversubscribe -n "$n" "$hone" "$@"
}
quiet() { grep -v '^hone: computing on the CPU' "$1" | sed '/^-----*$/,/^-----*$/d; /^$/d'; } # without mpirun's own words

# ---- models with enough of everything to cut
model() { # model NAME CONFIG
    mkdir -p "$work/$1.config"
    echo "{$2,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":512,\"hidden_act\":\"silu\",\"initializer_range\":0.2,\"eos_token_id\":2}" >"$work/$1.config/config.json"
    "$hone" random "$work/$1.config" "$work/$1" --seed 5 >"$work/$1.log" 2>&1 || { echo "no model: $(cat "$work/$1.log")"; exit 1; }
}
model dense '"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_size":56,"num_hidden_layers":4,"vocab_size":1111,"num_attention_heads":14,"num_key_value_heads":2,"intermediate_size":45,"tie_word_embeddings":true'
model moe '"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","hidden_size":48,"num_hidden_layers":4,"vocab_size":700,"num_attention_heads":8,"num_key_value_heads":2,"head_dim":12,"intermediate_size":70,"moe_intermediate_size":18,"num_experts":6,"num_experts_per_tok":2,"norm_topk_prob":true,"mlp_only_layers":[1],"decoder_sparse_step":1,"tie_word_embeddings":false'
model shared '"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":40,"num_hidden_layers":3,"vocab_size":700,"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":44,"moe_intermediate_size":22,"n_routed_experts":8,"num_experts_per_tok":3,"n_shared_experts":2,"n_group":4,"topk_group":2,"routed_scaling_factor":1.7,"norm_topk_prob":true,"scoring_func":"sigmoid","topk_method":"noaux_tc","first_k_dense_replace":1,"q_lora_rank":20,"kv_lora_rank":24,"qk_nope_head_dim":14,"qk_rope_head_dim":6,"v_head_dim":10,"tie_word_embeddings":false'
awk 'BEGIN { srand(4); for (i = 0; i < 19; i++) { n = i % 5 ? int(rand() * 40) + 2 : 1; printf "{\"prompt_length\":1,\"tokens\":[";
    for (k = 0; k < n; k++) printf "%s%d", k ? "," : "", int(rand() * 700); print "]}" } }' >"$work/lines.jsonl"
echo '{"tokens":[1,"x"]}' >>"$work/lines.jsonl"

# ---- score: rank by rank the bytes of one
scores() { # scores MODEL N GRID ARGUMENT...
    local m=$1 n=$2 grid=$3
    shift 3
    "$hone" score "$work/$m" --device cpu --in "$work/lines.jsonl" --batch 64 "$@" >"$work/one.jsonl" 2>"$work/one.err"
    local one=$?
    ranks "$n" score "$work/$m" --device cpu --in - --grid "$grid" --batch 64 "$@" <"$work/lines.jsonl" >"$work/many.jsonl" 2>"$work/many.err"
    [ $? = $one ] && cmp -s "$work/one.jsonl" "$work/many.jsonl" && [ -z "$(quiet "$work/many.err")" ]
    ok $? "score $m on $n ranks, $grid $*: $(quiet "$work/many.err"; diff <(head -c 400 "$work/one.jsonl") <(head -c 400 "$work/many.jsonl"))"
}
for m in dense moe; do
    scores $m 2 tp=2
    scores $m 4 tp=4 --temperature 0.7
    scores $m 8 tp=8
    scores $m 3 dp=3
    scores $m 4 tp=2,dp=2 --min-tokens 3
    scores $m 1 tp=1
    scores $m 2 tp=2 --top-p 0.9
    scores $m 4 tp=4 --temperature 0.8 --top-k 20 --min-p 0.01
    scores $m 4 pp=4
    scores $m 2 cp=2 --top-k 30
    scores $m 4 tp=2,cp=2 --min-tokens 3
    scores $m 4 tp=2,pp=2 --top-p 0.5
done
scores moe 4 ep=4
scores moe 6 ep=6 --top-k 5
scores moe 4 tp=2,ep=2,etp=2
scores moe 8 tp=2,pp=2,ep=4
ranks 2 score "$work/dense" --device cpu --in "$work/lines.jsonl" --out "$work/file.jsonl" --batch 64 >"$work/out" 2>&1
"$hone" score "$work/dense" --device cpu --in "$work/lines.jsonl" 2>/dev/null | cmp -s - "$work/file.jsonl"
ok $? "score --out on 2 ranks, no grid"

# ---- verify: the reference's log-probs, gradients and optimizer steps on every grid, and what each rank reads, holds and computes
verifies() { # verifies MODEL N GRID
    ranks "$2" verify "$repo/tests/data/models/$1" --device cpu --grid "$3" >"$work/out" 2>"$work/err"
    [ $? = 0 ] && [ -z "$(quiet "$work/err")" ] && grep -qE '^[4-8] passed, 0 failed' "$work/out" && [ "$(grep -cE '^ +[0-9]+ tp' "$work/out")" = "$2" ]
    ok $? "verify $1 on $2 ranks, $3: $(cat "$work/out" "$work/err")"
}
verifies qwen2 4 tp=4
verifies qwen3 2 cp=2
verifies llama 3 dp=3
verifies mixtral 4 ep=4
verifies deepseek_v3 8 tp=2,pp=2,ep=4
verifies moonlight 4 tp=2,cp=2
grep -qE '^  whole on each rank of tp, [0-9]+ bytes:.* input_layernorm.weight 256 .* mlp.gate.weight 1024 ' "$work/out"
ok $? "what stays whole on a rank of tp: $(grep whole "$work/out")"
verifies qwen3_moe_plain 4 pp=2,vpp=2
ranks 2 verify "$repo/tests/data/models/deepseek_v3_fp8" --device cpu --grid tp=2 >"$work/out" 2>&1
awk '/^ +[01] tp/ { sum += $8; n++; if ($8 > most) most = $8 } END { exit !(n == 2 && most < 0.8 * sum) }' "$work/out"
ok $? "each rank reads its part: $(cat "$work/out")"

# ---- generate: the answers of one rank, whatever the number of replicas
awk 'NR % 2' "$work/lines.jsonl" | sed 's/"prompt_length":1,//' >"$work/prompts.jsonl"
generates() { # generates MODEL N GRID ARGUMENT...
    local m=$1 n=$2 grid=$3
    shift 3
    "$hone" generate "$work/$m" --device cpu --in "$work/prompts.jsonl" --n 3 --max-tokens 12 "$@" >"$work/one.jsonl" 2>"$work/one.err"
    local one=$?
    ranks "$n" generate "$work/$m" --device cpu --in - --grid "$grid" --n 3 --max-tokens 12 --max-batch 5 "$@" <"$work/prompts.jsonl" >"$work/many.jsonl" 2>"$work/many.err"
    [ $? = $one ] && cmp -s "$work/one.jsonl" "$work/many.jsonl" && [ -z "$(quiet "$work/many.err")" ]
    ok $? "generate $m on $n ranks, $grid $*: $(quiet "$work/many.err"; diff <(head -c 400 "$work/one.jsonl") <(head -c 400 "$work/many.jsonl"))"
}
for m in dense moe; do
    generates $m 2 tp=2
    generates $m 8 tp=8 --temperature 0.7 --top-p 0.9
    generates $m 3 dp=3 --greedy
    generates $m 4 tp=2,dp=2 --top-k 20 --min-tokens 3
done
generates moe 4 tp=4,ep=2,etp=2
generates moe 4 dp=4,ep=4 --max-batch 3
generates moe 8 tp=2,dp=4,ep=4 --temperature 0.8
generates shared 4 tp=2,dp=2,ep=4
generates shared 4 tp=2,etp=2 --max-batch 1
generates shared 3 dp=3,ep=3

# ---- refusals: one line, said once, with the right code
refuses() { # refuses CODE PATTERN N VERB ARGUMENT...
    local code=$1 pattern=$2
    shift 2
    ranks "$@" >"$work/out" 2>"$work/err" </dev/null
    [ $? = "$code" ] && [ "$(quiet "$work/err" | wc -l)" = 1 ] && quiet "$work/err" | grep -qE -- "$pattern"
    ok $? "$*: $(cat "$work/err")"
}
refuses 1 'tp x pp x cp = 6 .*nearest is tp2,pp2' 4 score "$work/dense" --device cpu --grid tp=2,pp=3
refuses 1 'tp is a power of two; the nearest is 2' 3 score --device cpu "$work/dense" --device cpu --grid tp=3
refuses 1 '5 stages for 4 layers; pp=4 is the most' 5 score "$work/dense" --device cpu --grid pp=5
refuses 1 'pp 2 x vpp 3 chunks for 4 layers; vpp=2 is the most' 2 score "$work/dense" --device cpu --grid pp=2,vpp=3
refuses 1 'has no experts' 2 score "$work/dense" --device cpu --grid ep=2
refuses 1 'ep 4 x etp 1 does not divide .* ep=2 would' 2 score "$work/moe" --device cpu --grid ep=4
refuses 1 "grid 'xy=2' is not understood" 2 score "$work/dense" --device cpu --grid xy=2
refuses 1 'no config.json' 3 score --device cpu "$work" --in "$work/lines.jsonl"
refuses 1 'nowhere' 3 score --device cpu "$work/dense" --in "$work/nowhere"
refuses 1 'cannot create' 3 score --device cpu "$work/dense" --in "$work/lines.jsonl" --out /proc/x/y
refuses 2 'one process.s work' 2 verify "$repo/tests/data/models/qwen2" --dump "$work/dump"
refuses 2 'there is no option --gird' 3 score --device cpu "$work/dense" --gird tp=2
refuses 2 'one process.s work, and Open MPI.s mpirun started 2' 2 random "$work/dense.config" "$work/twice"
refuses 2 'started 2' 2 chat "$work/dense"
[ ! -e "$work/twice" ]
ok $? "random wrote all the same"
ranks 3 --version >"$work/out" 2>"$work/err"
[ "$(wc -l <"$work/out")" = 1 ]
ok $? "--version on 3 ranks: $(cat "$work/out")"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$hone" score "$work/dense" --in "$work/lines.jsonl" >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -q 'started 2 processes, but MPI .* sees 1' "$work/err"
ok $? "two processes that MPI says are alone: $(cat "$work/err")"
the_end
