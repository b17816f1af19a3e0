#!/bin/bash
# sections.sh SECTION [PART...] - what ./check --gpu runs, on a machine that has a GPU and nothing of ours but this tree with
# build/gpu in it.  Each section takes less than nine minutes and ends with "N passed, N failed, N skipped".
#   ops       every op: GPU against CPU by bound, against itself by memcmp
#   exact     models, engine and trainer in float32 and bfloat16; half a million sampled tokens; reference values of every family
#   loop      quickstart on the GPU; the same seed twice; kills; a run that changes devices
#   grpo      a real model's shape from a seed, and 200 steps: memory as planned, asked for once
#   bars      speed beside transformers on the same shapes in the same call (bench/peers; python3 with torch), and against the card's own roofs; nothing else may run
#   moonlight Moonlight-16B-A3B's shape from a seed, all parameters trained on the one card: memory, seconds and masters beside the plan; wants 100 GB of the host
#   sanitize  memcheck, initcheck and racecheck over the op tests on small shapes: no report at all
#   tiles     products, whose tiles are counted out: equal bits for every kind and edge, also with a smaller card's tiles and beside
#             kernels that wait; times beside those.  Parts: bits, beside
#   nccl      2, 4 and 8 ranks on the one GPU: what groups do, models cut over them, sync of 2 GB, training, kills.  Parts: grouped, often,
#             trained, killed
#   (none)    a selection of the first three
cd "$(dirname "$0")/../.." || exit 1
gpu=$PWD/build/gpu hone=$PWD/build/gpu/hone
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { # ok CONDITION-RESULT WHAT
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}
program=$gpu/hone_gpu_test
tests() { # tests NAME... [-- ARGUMENTS]: each test program's own counts are added
    "$program" "$@" >"$work/log" 2>&1
    local rc=$? p f s
    cat "$work/log"
    while read -r p _ f _ s _; do passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)); done \
        < <(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$work/log" | tr -d ,)
    [ $rc = 0 ] || grep -q ' [1-9][0-9]* failed' "$work/log" || ok 1 "a test program died"
}
families="llama qwen2 qwen3 qwen3_moe qwen3_moe_plain mixtral deepseek_v3 moonlight deepseek_v3_yarn llama_long qwen2_long qwen2_5_vl qwen2_5_vl_clips"
verify() { # verify COMPUTE
    local m
    for m in $families; do
        "$hone" verify "tests/data/models/$m" --device cuda --compute "$1" >"$work/verify" 2>&1
        ok $? "hone verify $m in $1: $(grep -E 'FAILED|hone' "$work/verify" | head -3)"
    done
}

ops() { tests gpu_rows gpu_link gpu_product gpu_fused gpu_head gpu_attn gpu_mla gpu_tp gpu_sizes test_op; }
sampled="llama qwen2 qwen3 qwen3_moe qwen3_moe_plain mixtral deepseek_v3 moonlight deepseek_v3_yarn random-llama random-qwen2 random-qwen3 random-qwen3_moe random-mixtral random-deepseek_v3 random-moonlight wide-qwen3_moe wide-moonlight"
million() { # half a million tokens and more in bfloat16: each model in a process of its own, six at a time
    local m p f s
    printf '%s\n' $sampled | xargs -P 6 -I{} sh -c '"$0/hone_gpu_test" bf16 million -- --all {} >"$1/million.{}" 2>&1; echo "exit $?" >>"$1/million.{}"' "$gpu" "$work"
    for m in $sampled; do
        grep -h "^tokens\|FAILED\|hone:" "$work/million.$m" | sed "s/^/$m: /"
        read -r p _ f _ s _ < <(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$work/million.$m" | tr -d ,)
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
        [ "$(tail -1 "$work/million.$m")" = "exit 0" ]
        ok $? "$m: $(tail -3 "$work/million.$m")"
    done
    grep -h "^tokens" "$work"/million.* | awk '{ n += $2; if ($4 > d) d = $4; e += $6; r += $8; w += $10 } END { print n, "tokens in all, largest difference", d + 0 ", entropies that differ", e + 0 ", routes", r, "of which differ", w + 0 }'
}
exact() {
    tests test_model_exact test_model_gradient test_engine_engine test_train
    tests f32 million
    million
    tests bf16 million -- --one
    verify f32
    verify bf16
    vision
}
# Prompts with 1 to 4 pictures, prefilled in chunks, with prefix hits and preemption: a tower on tensor cores (heads of
# 80 columns, 428 columns of a feed-forward, as published ones have 80 and 3420) and one that only the plain kernels
# take.
vision() {
    local recipe=$PWD/recipes/quickstart-vision m line
    "$hone" random tests/gpu/vl_wide.json "$work/vl_wide" --seed 3 >/dev/null && "$hone" random "$recipe/model" "$work/vl_small" --seed 3 >/dev/null
    ok $? "no model"
    cp "$recipe"/model/{tokenizer,tokenizer_config,preprocessor_config}.json "$work/vl_wide"
    cp tests/data/vision/{photo,half,same,wide,palette,rgba,tall}.png tests/data/vision/{jpeg420.jpg,lossy.webp} "$work"
    awk 'BEGIN { srand(5); n = split("photo.png half.png same.png wide.png palette.png rgba.png tall.png jpeg420.jpg lossy.webp", f, " ")
        for (i = 0; i < 64; i++) { k = 1 + i % 4; s = ""; m = ""; for (j = 0; j < k; j++) { s = s (j ? "," : "") "\"" f[1 + int(rand() * n)] "\""; m = m "<image>" }
            printf "{\"data_source\":\"math_exact_flexible\",\"prompt\":[{\"role\":\"user\",\"content\":\"%swhich colour?\"}],\"images\":[%s],\"reward_model\":{\"ground_truth\":\"1\"}}\n", m, s } }' \
        >"$work/pictures.jsonl"
    for m in vl_wide vl_small; do
        "$hone" train "$recipe/grpo.yaml" model.path="$work/$m" data.train_files="[$work/pictures.jsonl]" data.train_batch_size=32 data.max_prompt_length=120 \
            data.max_response_length=64 rollout.n=8 rollout.page=16 rollout.kv_tokens=2048 rollout.token_budget=56 rollout.max_batch=48 rollout.ignore_eos=true \
            trainer.steps=2 trainer.val_every=0 reward.scorer=null reward.library="$gpu/each.so" trainer.run_dir="$work/run_$m" --device cuda >"$work/$m.log" 2>&1
        ok $? "$m: $(tail -1 "$work/$m.log")"
        line=$(grep "largest difference of a log-prob" "$work/$m.log")
        echo "$m: $line"
        [[ $line == *"log-prob 0, over"* ]] && [ "$(sed 's/.*over \([0-9]*\) tokens.*/\1/' <<<"$line")" -ge 20000 ]
        ok $? "$m: 20,000 tokens with pictures, difference 0: $line"
    done
}
model() { # 81 sums, and a model that has learned to answer them now and then
    local i q
    for ((i = 0; i < 81; i++)); do
        q='"prompt":[{"role":"user","content":"'$((i % 9))+$((i / 9))'"}]'
        echo '{"data_source":"openai/gsm8k",'$q',"reward_model":{"style":"rule","ground_truth":"'$((i % 9 + i / 9))'"}}' >&3
        echo '{'$q',"response":"#### '$((i % 9 + i / 9 + i % 3 - 1))'"}' >&4
    done 3>"$work/sums.jsonl" 4>"$work/pairs.jsonl"
    "$hone" random recipes/quickstart/model "$work/random" --seed 3 >/dev/null &&
        "$hone" sft recipes/quickstart/sft.yaml model.path="$work/random" data.train_files="[$work/pairs.jsonl]" sft.batch_size=27 trainer.steps=60 \
            trainer.run_dir="$work/sft" trainer.device=cuda >"$work/sft.log" 2>&1 && "$hone" export "$work/sft" "$work/model" >/dev/null
    ok $? "no model: $(tail -1 "$work/sft.log")"
}
train() { (start "$@"); }
start() { # the same in place of this shell: start RUN KEY=VALUE... &
    local run=$1
    shift
    exec "$hone" train recipes/quickstart/grpo.yaml model.path="$work/model" data.train_files="[$work/sums.jsonl]" data.train_batch_size=16 trainer.run_dir="$work/$run" \
        trainer.steps=12 trainer.save_every=2 trainer.val_before_train=false trainer.val_every=0 trainer.device=cuda "$@" >"$work/$run.log" 2>&1
}
same() { # same RUN RUN: the last checkpoints' weights and states
    local f
    for f in model/model.safetensors optimizer.safetensors; do
        cmp -s "$work/$1/checkpoints/step-000012/$f" "$work/$2/checkpoints/step-000012/$f"
        ok $? "$1 and $2 differ in $f"
    done
}
verbs() { # generate, score, eval and chat: what was generated has the same log-probs when it is scored
    seq 0 40 | awk '{ printf "{\"messages\":[{\"role\":\"user\",\"content\":\"%d+%d\"}]}\n", $1 % 9, $1 % 7 }' >"$work/prompts"
    "$hone" generate "$work/model" --in "$work/prompts" --out "$work/said" --n 4 --max-tokens 24 --top-p 0.9 --device cuda 2>"$work/err" &&
        "$hone" score "$work/model" --in "$work/said" --out "$work/scored" --top-p 0.9 --device cuda 2>>"$work/err"
    ok $? "generate and score: $(head -3 "$work/err")"
    numbers() { grep -oE '"logprobs":\[[^]]*\]' "$1"; }
    paste <(numbers "$work/said") <(numbers "$work/scored") | awk -F'\t' '{ n++; sub(/.*\[/, "", $1); bad += substr($2, length($2) - length($1) + 1) != $1 } END { exit bad > 0 || n != 164 }'
    ok $? "what was generated is scored otherwise: $(numbers "$work/said" | head -1) $(numbers "$work/scored" | head -1)"
    "$hone" eval "$work/model" "$work/sums.jsonl" --max-tokens 24 --device cuda >"$work/eval" 2>&1
    ok $? "eval: $(tail -1 "$work/eval")"
    echo "2+2" | "$hone" chat "$work/model" --max-tokens 8 --device cuda >"$work/chat" 2>&1
    ok $? "chat: $(tail -1 "$work/chat")"
}
loop() { # loop [SHORT]
    model
    verbs
    train once
    ok $? "a run: $(tail -1 "$work/once.log")"
    [ "$(grep -oE '"exact/max_abs_logprob_diff":[^,}]*' "$work/once/metrics.jsonl" | sort -u)" = '"exact/max_abs_logprob_diff":0' ]
    ok $? "sampled and trained log-probs differ: $(grep -o '"exact/max_abs_logprob_diff":[^,]*' "$work/once/metrics.jsonl" | sort | uniq -c)"
    train twice
    same once twice
    for ((k = 0; k < ${1:-10}; k++)); do # killed wherever it is, then gone on with
        start killed &
        sleep "$((k % 2)).$((1 + k * 3 % 9))"
        kill -9 $! 2>/dev/null
        wait $! 2>/dev/null
    done
    train killed
    ok $? "after kills: $(tail -1 "$work/killed.log")"
    same once killed
    train moves trainer.steps=4 && train moves trainer.steps=8 trainer.device=cpu && train moves
    ok $? "GPU, CPU, GPU: $(tail -1 "$work/moves.log")"
    [ "$(grep -c 'device was "' "$work/moves/log.txt")" = 2 ]
    ok $? "the change of devices was not said: $(grep device "$work/moves/log.txt")"
    [ -n "$1" ] && return
    sed '/need_packages/d; /^build build/d; /packages.sh/d; /^cd /d; s#^hone=.*#hone=build/gpu/hone#; s#^run=runs/#run='"$work"'/#' quickstart >"$work/quick.sh"
    bash "$work/quick.sh" --device cuda >"$work/quick.log" 2>&1
    ok $? "quickstart: $(tail -5 "$work/quick.log")"
    grep -E 'validation after' "$work/quick.log" | tail -1
}
# Qwen2.5-0.5B's shape from a seed, 5 steps in which no answer is silent; then 200 steps of a small one: memory is asked
# for at the start and never again, and the driver's figure is the plan's.
wide_model() { # wide_model CONFIG DIR: with a tokenizer that has as many tokens as the model
    mkdir -p "$2"
    cp "$1" "$2/config.json"
    cp recipes/quickstart/model/tokenizer_config.json "$2"
    awk -v n="$(sed -nE 's/.*"vocab_size": *([0-9]+).*/\1/p' "$1")" '{
        at = match($0, /"####[^"]+": ?258/)
        if (!at) { print; next }
        printf "%s", substr($0, 1, at + RLENGTH - 1)
        for (i = 262; i < n; i++) printf ",\"w%d\":%d", i, i
        print substr($0, at + RLENGTH) }' recipes/quickstart/model/tokenizer.json >"$2/tokenizer.json"
}
metric() { grep -oE "\"$2\":[^,}]*" "$work/$1/metrics.jsonl" | cut -d: -f2; } # metric RUN NAME: one a line
held() { # held RUN: nothing is asked for after the first step, and what is in use is constant and within 3 % of the plan
    [ "$(metric "$1" perf/gpu_allocations | sort -u | wc -l)" = 1 ]
    ok $? "$1: memory was asked for after the first step: $(metric "$1" perf/gpu_allocations | sort | uniq -c)"
    paste <(metric "$1" perf/gpu_memory_used_gb) <(metric "$1" perf/gpu_memory_planned_gb) | awk -v run="$1" '
        NR == 2 { first = $1 }
        NR >= 2 { if ($1 != first || $1 > 1.03 * $2 || $1 < 0.97 * $2) bad++ }
        END { printf "%s: %d steps, %s GB in use, %s GB planned, %d steps off\n", run, NR, $1, $2, bad; exit bad > 0 || NR < 2 }'
    ok $? "$1: memory in use is not what was planned"
}
grpo() {
    model
    wide_model tests/data/configs/Qwen2.5-0.5B.json "$work/wide"
    train wide model.path="$work/wide" model.random=1 trainer.steps=5 trainer.save_every=0 data.train_batch_size=32 rollout.n=8 data.max_response_length=256 \
        rollout.ignore_eos=true train.micro_tokens=8192 reward.library="$gpu/each.so"
    ok $? "Qwen2.5-0.5B's shape: $(tail -1 "$work/wide.log")"
    [ "$(metric wide perf/silent_ratio | sort -u)" = 0 ]
    ok $? "silent answers: $(metric wide perf/silent_ratio)"
    [ "$(metric wide exact/max_abs_logprob_diff | sort -u)" = 0 ]
    ok $? "sampled and trained log-probs differ: $(metric wide exact/max_abs_logprob_diff)"
    held wide
    grep -h 'planned for this run' "$work/wide/log.txt"
    train many trainer.steps=200 trainer.save_every=0 reward.library="$gpu/each.so"
    ok $? "200 steps: $(tail -1 "$work/many.log")"
    held many
    train here trainer.steps=12 # states in the host's memory: the same bytes
    for f in 0.3 1; do
        train "there$f" train.offload_fraction=$f
        ok $? "train.offload_fraction $f: $(tail -1 "$work/there$f.log")"
        same here "there$f"
    done
}
# 64 x 8 answers of 1024 tokens, three steps: bf16 weights and float32 gradients on the card, 6 bytes a parameter on the host.
moonlight() {
    local begin
    model
    wide_model tests/data/configs/Moonlight-16B-A3B.json "$work/sixteen"
    begin=$SECONDS
    train moon model.path="$work/sixteen" model.random=1 trainer.steps=3 trainer.save=never trainer.exact_every=1 train.master=remainder train.moments=bf16 \
        train.offload_fraction=1 train.recompute=full train.micro_tokens=16384 data.train_batch_size=64 rollout.n=8 data.max_response_length=1024 \
        rollout.ignore_eos=true reward.library="$gpu/each.so"
    ok $? "the run: $(tail -1 "$work/moon.log")"
    [ $((SECONDS - begin)) -le 540 ]
    ok $? "three steps took $((SECONDS - begin)) s"
    echo "three steps in $((SECONDS - begin)) s from start to end"
    grep -E 'largest difference|^masters:|predicted' "$work/moon.log"
    grep -qF 'log-prob 0, over 1572864 tokens of 1572864' "$work/moon.log"
    ok $? "not all tokens with difference 0: $(grep 'largest difference' "$work/moon.log")"
    [ "$(metric moon perf/silent_ratio | sort -u)" = 0 ]
    ok $? "silent answers: $(metric moon perf/silent_ratio)"
    awk '/^masters:/ { n = $2; of = $4 } END { exit !(n > 0 && n == of) }' "$work/moon.log"
    ok $? "masters that did not change: $(grep '^masters:' "$work/moon.log")"
    held moon
    awk '/predicted/ { n++; for (i = 1; i <= NF; i++) { if ($i == "predicted") p = $(i + 1); if ($i == "measured") m = $(i + 1) } if (p < 0.8 * m || p > 1.2 * m) bad++ }
        END { exit bad > 0 || n < 2 }' "$work/moon.log"
    ok $? "a phase is more than 20 % from the plan: $(grep predicted "$work/moon.log")"
}
# Ranks that share the GPU.  One server for all of their kernels (MPS) makes them some twenty times quicker; a rank that dies would take it down
# with the others, so kills do without.
mps_begin() {
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps_log
    mkdir -p "$work/mps" "$work/mps_log"
    command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d || mps_end
}
mps_end() {
    echo quit | nvidia-cuda-mps-control >/dev/null 2>&1
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
ranks() { # ranks N RUN KEY=VALUE...: quickstart's task, in place of this shell
    local n=$1 run=$2 under=""
    shift 2
    [ "$n" = 1 ] || under="mpirun --allow-run-as-root --oversubscribe -n $n"
    exec timeout -k 5 120 $under "$hone" train recipes/quickstart/grpo.yaml model.path="$work/model" data.train_files="[$work/sums.jsonl]" data.train_batch_size=16 \
        trainer.steps=20 trainer.save_every=10 trainer.exact_every=1 trainer.val_before_train=false trainer.val_every=0 trainer.device=cuda trainer.share_gpu=true \
        trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}
# Weights differ by rounding after the first update, and then so do a few of the answers: the first step is one GPU's, the scores of all stay near.
beside_one() { # beside_one RUN WHAT
    [ "$(metric "$1" exact/max_abs_logprob_diff | sort -u)" = 0 ] && [ "$(metric "$1" exact/max_abs_logprob_diff | wc -l)" = 20 ]
    ok $? "$2: sampled and trained log-probs differ: $(metric "$1" exact/max_abs_logprob_diff | sort | uniq -c | tr '\n' ' ')$(tail -2 "$work/$1.log")"
    paste <(metric one actor/loss) <(metric "$1" actor/loss) <(metric one actor/grad_norm) <(metric "$1" actor/grad_norm) <(metric one critic/score/mean) \
        <(metric "$1" critic/score/mean) <(metric "$1" exact/tokens) | awk -v what="$2" 'function abs(x) { return x < 0 ? -x : x }
        NR == 1 { l = abs($1 - $2); g = abs($4 / $3 - 1) }
        { a += $5; b += $6; n += $7 }
        END { d = NR ? (b - a) / NR : 9; printf "%s: %d tokens; first loss apart by %.1e, norm by %.1e, mean score of 20 steps by %.3f\n", what, n, l, g, d
            exit !(NR == 20 && l < 1e-6 && g < 2e-2 && abs(d) < 0.1) }'
    ok $? "$2: not as on one GPU"
}
equal() { # equal RUN RUN WHAT: the last checkpoints
    local f
    for f in model/model.safetensors optimizer.safetensors; do
        cmp -s "$work/$1/checkpoints/step-000020/$f" "$work/$2/checkpoints/step-000020/$f"
        ok $? "$3: $f differs: $(tail -2 "$work/$2.log")"
    done
}
linked() { # what ranks measure between them is a cluster file that hone plan reads
    timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe -n 4 "$hone" bench link --device cuda --share-gpu --repeats 3 --write "$work/links.yaml" >"$work/links" 2>&1
    ok $? "bench link on 4 ranks: $(tail -2 "$work/links")"
    grep -E '"bytes":(65536|67108864)' "$work/links"
    [ "$(grep -cE '"call":"(all-reduce|all-to-all|send)","bytes":[0-9]+,"seconds":[0-9.e-]+,"gb_per_s":[0-9]' "$work/links")" = 12 ] && grep -q '"by":"nccl"' "$work/links"
    ok $? "bench link on 4 ranks: $(head -c 300 "$work/links")"
    grep -qE '^type: (custom|[A-Z]+[0-9])' "$work/links.yaml" && grep -qE '^nvlink: [0-9.e+]*GB/s' "$work/links.yaml"
    ok $? "the cluster file: $(tr '\n' ' ' <"$work/links.yaml")"
    "$hone" plan tests/data/configs/Qwen2.5-0.5B.json --cluster "$work/links.yaml" --json >"$work/plan" 2>&1 && grep -q '"gpus":4' "$work/plan"
    ok $? "a plan with the measured links: $(head -c 300 "$work/plan")"
}
trained() {
    local g
    (ranks 1 one)
    ok $? "one GPU: $(tail -1 "$work/one.log")"
    for g in "tp2 grid.tp=2 rollout.grid.tp=1" "pp2 grid.pp=2 rollout.grid.tp=2" "tp2xep4 grid.tp=2 grid.ep=4 rollout.grid.tp=2 rollout.grid.dp=2 rollout.grid.ep=4" \
        "pp2xvpp2 grid.pp=2 grid.vpp=2 rollout.grid.tp=4 rollout.grid.ep=4"; do
        set -- $g
        (ranks 4 "$@")
        ok $? "$g: $(tail -2 "$work/$1.log")"
        beside_one "$1" "$g"
    done
    (ranks 4 again grid.tp=2 rollout.grid.tp=1)
    equal tp2 again "the same grid twice"
    # Where states, weights and the reference lie changes no byte; the trainer's cut is not the sampler's.
    (ranks 4 host grid.tp=2 rollout.grid.tp=1 train.offload_fraction=0.5)
    equal tp2 host "half of the states on the host"
    (ranks 4 parked grid.tp=2 rollout.grid.tp=1 train.park_states=true train.park_weights=true trainer.save_buffer=5000)
    equal tp2 parked "states and weights parked"
    (ranks 4 kl grid.tp=2 rollout.grid.tp=1 train.use_kl_loss=true)
    [ "$(metric kl actor/kl_loss | awk '$1 > 0' | wc -l)" -ge 15 ]
    ok $? "with a reference: $(metric kl actor/kl_loss | tr '\n' ' ')$(tail -2 "$work/kl.log")"
    (ranks 4 kl_parked grid.tp=2 rollout.grid.tp=1 train.use_kl_loss=true train.offload_fraction=0.3 train.park_states=true train.park_weights=true)
    equal kl kl_parked "with a reference, some states on the host, the rest and the weights parked"
    linked
    (ranks 4 line grid.pp=2 rollout.grid.tp=2 trainer.steps=2 trainer.profile="$work/line.json")
    grep -oE '"tid":[15],"name":"[a-z_0-9 ]*","ts":[0-9.]*,"dur":[0-9.]*' "$work/line.json" | tr -d '"' | sed 's/[a-z]*://g' | sort -t, -k3,3n | awk -F, '
        $1 == 5 { n++; if ($3 + $4 > end) end = $3 + $4; next }
        $3 < end { both++ }
        END { printf "a timeline: %d of NCCL'"'"'s calls, %d ops that began while one ran\n", n, both; exit !(n && both) }'
    ok $? "no timeline, or nothing at the same time: $(tail -1 "$work/line.log")"
    (ranks 2 own trainer.share_gpu=false grid.tp=2)
    ok $((! $?)) "two ranks on one GPU without trainer.share_gpu"
    grep -q 'share' "$work/own.log"
    ok $? "it was not said how ranks share a GPU: $(tail -1 "$work/own.log")"
}
of_rank() { # of_rank RUN K: its process
    local p
    for p in $(pgrep -f "^$hone .*trainer.run_dir=$work/$1( |\$)"); do grep -qz "^OMPI_COMM_WORLD_RANK=$2\$" "/proc/$p/environ" 2>/dev/null && echo "$p"; done
}
in_phase() { # in_phase PID PHASE: the name of a thread (comm/watch.h)
    grep -qx "$2" /proc/"$1"/task/*/comm 2>/dev/null
}
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits; }
killed() { # killed SIGNAL PHASE: rank 2 of 4 gets it there
    local run=$1_$2 child pid i before begin what="kill -$1 in $2"
    before=$(used)
    (ranks 4 "$run" grid.tp=2 rollout.grid.tp=1 trainer.steps=1000 trainer.save_every=1 trainer.wait_seconds=8) &
    child=$!
    for ((i = 0; i < 300; i++)); do [ "$(cat "$work/$run/metrics.jsonl" 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.1; done
    pid=$(of_rank "$run" 2)
    for ((i = 0; i < 2000; i++)); do in_phase "$pid" "$2" && break; done
    begin=$SECONDS
    kill "-$1" "$pid"
    ok $? "$what: there is no rank 2: $(tail -2 "$work/$run.log")"
    wait $child 2>/dev/null
    ok $((! $?)) "$what: exit code 0"
    [ $((SECONDS - begin)) -le 20 ] && [ -z "$(pgrep -f "trainer.run_dir=$work/$run( |\$)")" ]
    ok $? "$what: after $((SECONDS - begin)) s there are still ranks"
    grep -qE 'rank 2 (is gone|has given no sign of life).* it was in ' "$work/$run/log.txt"
    ok $? "$what: not named: $(grep '^hone' "$work/$run.log" | head -3)"
    for ((i = 0; i < 50; i++)); do [ "$(used)" -le $((before + 600)) ] && break; sleep 0.1; done
    [ "$(used)" -le $((before + 600)) ]
    ok $? "$what: $(used) MB are still taken, $before before"
    echo "$what: gone after $((SECONDS - begin)) s; $(grep -ohE 'rank 2 (is gone|has given).*it was in [a-z]*' "$work/$run/log.txt" | head -1)"
    (ranks 4 "$run" grid.tp=2 rollout.grid.tp=1 trainer.save_every=1 trainer.steps=$(($(wc -l <"$work/$run/metrics.jsonl") + 1)))
    ok $? "$what, going on: $(tail -1 "$work/$run.log")"
}
# The number that stands for all bits is one and the same with the tiles of a card of fewer multiprocessors (MPS gives a
# program a share of them: 59 % of an H200 are an H20's 78).
tiles() { # tiles [bits|beside ...]
    local part share want got
    for part in ${@:-bits beside}; do
        case $part in
        bits)
            tests gpu_tiles
            want=$("$program" gpu_tiles -- bits | grep -oE 'bits [0-9a-f]{16} on [0-9]+')
            echo "$want"
            [ -n "$want" ]
            ok $? "no bits"
            mps_begin
            for share in 59 30; do
                got=$(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$share "$program" gpu_tiles -- bits | grep -oE 'bits [0-9a-f]{16} on [0-9]+')
                echo "$share %: $got"
                [ -n "$got" ] && [ "${got% on*}" = "${want% on*}" ]
                ok $? "$share % of the multiprocessors: $got, not $want"
                [ "${got#*on }" != "${want#*on }" ] || { skipped=$((skipped + 1)); echo "skipped: all multiprocessors are there"; }
            done
            mps_end ;;
        beside)
            "$gpu/bench_beside_gpu" 9 20 >"$gpu/beside.txt" 2>"$work/beside.err"
            ok $? "other bits: $(tail -1 "$gpu/beside.txt") $(tail -1 "$work/beside.err")"
            grep -v '^{' "$gpu/beside.txt" ;;
        esac
    done
}
nccl() { # nccl [grouped|often|trained|killed ...]
    command -v mpirun >/dev/null || { skipped=$((skipped + 1)); echo "skipped: there is no mpirun"; return; }
    local part phase signal t
    for part in ${@:-grouped often trained killed}; do
        [ $part = grouped ] || [ $part = often ] || [ -d "$work/model" ] || model
        [ $part = killed ] || mps_begin
        # One after the other: MPS has one pool of queues for all its clients, of which ranks ask for their part (comm/world.c);
        # beside others' some found the card "busy or unavailable".
        case $part in
        grouped) for t in test_comm "f32 test_model_ranks" "bf16 test_model_ranks" test_sync; do tests $t; done ;;
        often) # what goes wrong seldom
            for ((t = 0; t < 24; t++)); do
                timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe -n $((2 + t % 2 * 2)) "$gpu/hone_gpu_test" here test_comm_comm -- --ranks all >"$work/often" 2>&1
                ok $? "groups on $((2 + t % 2 * 2)) ranks, run $t: $(grep -v '^$' "$work/often" | tail -4)"
            done ;;
        trained) trained ;;
        killed) for phase in rollout sync update; do for signal in KILL STOP; do killed $signal $phase; done; done ;;
        esac
        [ $part = killed ] || mps_end
    done
}
# Each bar is a line: what, ours, the peer's or the roof's, ours over it, what that must reach.  A bar that is missed is a failure.  The lines that the programs
# wrote, which are JSON, stay in build/gpu/bars.jsonl.  The dearest come last.
value() { grep -oE "\"$1\": *[^,}]*" | head -1 | cut -d: -f2 | tr -d ' '; }
bar() { # bar WHAT OURS PEER LEAST: more is better, bar WHAT OURS PEER most MOST: less is
    awk -v what="$1" -v x="$2" -v y="$3" -v least="${5:-$4}" -v most="$([ "$4" = most ] && echo 1)" 'BEGIN { r = y + 0 > 0 ? x / y : 0; ok = most ? r > 0 && r <= least + 0 : r >= least + 0
        printf "%s  %-58s %10.5g  %10.5g  %6.3f of %s\n", ok ? "met   " : "MISSED", what, x, y, r, least; exit !ok }'
    ok $? "$1: ${2:-nothing} beside ${3:-nothing}, $4 $5 wanted"
}
bars() {
    local slice=bench/models/qwen3_30b_a3b.json share=bench/models/deepseek_v3_ep8.json small=tests/data/configs/Qwen2.5-0.5B.json b kept=$gpu/bars.jsonl
    : >"$kept"
    ours() { "$hone" bench "$@" --device cuda 2>&1 | tee -a "$kept"; }
    peers() { timeout 150 python3 "bench/peers/$@" 2>"$work/peer.err" | tee -a "$kept" >"$work/peer"; grep -q . "$work/peer" || tail -2 "$work/peer.err"; }
    peer() { grep "\"bench\": \"$1\"" "$work/peer" | value tokens_per_s; }
    peers slice_gpu.py $slice 8 16384 4096
    bar "Qwen3-30B slice, no recompute, tokens/s" "$(ours train-slice $slice --layers 8 --keep-logits | value tokens_per_s)" "$(peer 'train-slice, no recompute')" 1.05
    bar "the same, full recompute, attention kept" "$(ours train-slice $slice --layers 8 --recompute full --keep-logits | value tokens_per_s)" "$(peer 'train-slice, full recompute')" 1.05
    bar "the same, log-probs" "$(ours logprob $slice --layers 8 | value tokens_per_s)" "$(peer logprob)" 1.1
    for b in 1 16 64 256; do
        ours decode $slice --batch $b --answer $((b < 64 ? 24 : b < 256 ? 40 : 64)) >"$work/decode"
        bar "decode of $b at context 1500, tokens/s, of the roof" "$(value tokens_per_s <"$work/decode")" "$(value roof_tokens_per_s <"$work/decode")" "$([ $b = 256 ] && echo 0.6 || echo 0.5)"
    done
    ours optimizer >"$work/adamw"
    bar "AdamW on the device, bytes/s, of a copy" "$(value gb_per_s <"$work/adamw")" "$(value roof_gb_per_s <"$work/adamw")" 0.85
    bar "AdamW across the link, parameters/s, of the slower side" "$(value hybrid_params_per_s <"$work/adamw")" \
        "$(awk -v a="$(value host_params_per_s <"$work/adamw")" -v b="$(value link_params_per_s <"$work/adamw")" 'BEGIN { print a < b ? a : b }')" 0.85
    peers adamw_host.py
    bar "AdamW on the host in float32, parameters/s, of torch's fused" "$("$hone" bench optimizer --device cpu | tee -a "$kept" | value params_per_s)" "$(value params_per_s <"$work/peer")" 1.0
    if [ -x "$gpu/bench_prod_gpu" ]; then
        "$gpu/bench_prod_gpu" 20 dense >"$work/prod"
        peers prod_gpu.py "$work/prod"
        bar "dense products, bits free of the batch, of cuBLASLt's choice" "$(tail -1 "$work/peer" | value of_library)" 1 0.87
        grep '"cost": 0\.[1-9]' "$work/peer" | head -8
    else skipped=$((skipped + 1)) && echo "skipped: there is no build/gpu/bench_prod_gpu"; fi
    peers slice_gpu.py $slice 8 32768 32768 full
    bar "Qwen3-30B slice, 1 x 32,768 tokens, full, attention kept" "$(ours train-slice $slice --layers 8 --tokens 32768 --length 32768 --recompute full --repeats 3 --keep-logits | value tokens_per_s)" \
        "$(peer 'train-slice, full recompute')" 1.0
    peers slice_gpu.py $share 5 16384 4096 full
    bar "DeepSeek-V3's EP-8 share, full recompute, attention kept" "$(ours train-slice $share --recompute full --repeats 3 --keep-logits | value tokens_per_s)" "$(peer 'train-slice, full recompute')" 0.95
    peers grpo_gpu.py $small
    model
    wide_model $small "$work/wide"
    train bars model.path="$work/wide" model.random=1 trainer.steps=3 trainer.save=never data.train_batch_size=64 rollout.n=8 data.max_response_length=512 \
        rollout.ignore_eos=true train.micro_tokens=16384 train.keep_logits=true reward.library="$gpu/each.so"
    cat "$work/bars/metrics.jsonl" >>"$kept"
    bar "a GRPO step of Qwen2.5-0.5B's shape, steps/s" "$(metric bars timing_s/step | tail -1 | awk '{ print 1 / $1 }')" "$(tail -1 "$work/peer" | value seconds | awk '{ print 1 / $1 }')" 5
    for b in "Qwen2.5-0.5B 24" "Llama-3.1-8B 8" "Qwen3-8B 8" "Mixtral-8x7B 4" "Moonlight-16B-A3B 8" "Qwen3-30B-A3B 8"; do
        set -- $b
        peers step_gpu.py "$gpu" "tests/data/configs/$1.json" $2
        while read -r line; do
            bar "exactness's price: $1, $(grep -oE '(training|decoding)[^"]*' <<<"$line")" "$(value seconds <<<"$line")" "$(awk -v a="$(value seconds <<<"$line")" -v b="$(value price <<<"$line")" 'BEGIN { print a - b }')" most 1.1
        done < <(grep '"cost"' "$work/peer")
    done
}
# Each tool first on a fault that it must report, so that a tool that sees nothing is not taken for a clean program.
# Jobs run six at a time.  racecheck runs on build/gpu/race, where attention waits in a way that it follows
# (op/cuda/sm90/attn_mma.cuh); the library as it is, which it does not follow, is what it must report.
sanitizer() { # sanitizer NAME TOOL PROGRAM ARGUMENTS...: what it says into $work/san.NAME
    local name=$1 tool=$2
    shift 2
    timeout -k 5 400 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 1000 "$@" >"$work/san.$name" 2>&1
    echo $? >"$work/san.$name.rc"
}
# reported FILE: the tool's reports, one a line: kernel, and the lines in the source where they are known
reported() {
    sed -nE 's/^========= (Error|Warning): (.*)/\2/p; s/^========= +and (.*)/    \1/p; s/^========= (Invalid|Uninitialized|Race|Program hit)(.*)/\1\2/p; s/^========= +at (.*)/    \1/p' "$1" \
        | sed -E 's/\(CUtensorMap[^)]*\)//; s/\+0x[0-9a-f]+//; s/ \[[0-9]+ hazards\]//' | sort | uniq -c | sort -rn
}
sanitize() {
    local jobs i name tool rest
    command -v compute-sanitizer >/dev/null || { skipped=$((skipped + 1)); echo "skipped: there is no compute-sanitizer"; return; }
    cp "$gpu/hone_gpu_test" "$gpu/race/"
    sanitizer write memcheck "$gpu/hone_gpu_test" plant write
    [ "$(cat "$work/san.write.rc")" = 9 ]
    ok $? "memcheck does not see a write behind a block: $(tail -3 "$work/san.write")"
    sanitizer read initcheck "$gpu/hone_gpu_test" plant read
    [ "$(cat "$work/san.read.rc")" = 9 ]
    ok $? "initcheck does not see a read of what was never written: $(tail -3 "$work/san.read")"
    sanitizer race racecheck "$gpu/hone_gpu_test" few gpu_attn_brief -- 64
    [ "$(cat "$work/san.race.rc")" = 9 ]
    ok $? "racecheck sees nothing where a lane speaks for its warp: $(tail -3 "$work/san.race")"
    for rest in "gpu_head" "gpu_attn_brief -- mla" "gpu_attn_brief -- 128" "gpu_product" "gpu_rows" "gpu_attn_brief -- 64" "gpu_attn_brief -- all" "gpu_attn_brief -- 16/24" "gpu_fused" "test_op_moe"; do
        for tool in racecheck initcheck memcheck; do echo "$tool $rest"; done
    done >"$work/jobs"
    export -f sanitizer
    export work gpu
    seq "$(wc -l <"$work/jobs")" | xargs -P 6 -I{} bash -c 'read -r tool rest <<<"$(sed -n "{}p" "$work/jobs")"; begin=$SECONDS
        at=$gpu; [ $tool = racecheck ] && at=$gpu/race
        sanitizer {} $tool "$at/hone_gpu_test" few $rest; echo $((SECONDS - begin)) >"$work/san.{}.s"'
    for ((i = 1; i <= $(wc -l <"$work/jobs"); i++)); do
        name=$(sed -n "${i}p" "$work/jobs")
        echo "$name: $(grep -oE '[0-9]+ passed, [0-9]+ failed' "$work/san.$i" | tail -1), $(grep -oE '[0-9]+ (hazards displayed|errors).*' "$work/san.$i" | tail -1), $(cat "$work/san.$i.s") s"
        [ "$(cat "$work/san.$i.rc")" = 0 ]
        ok $? "$name: exit code $(cat "$work/san.$i.rc"): $(grep -E 'FAILED|hone:' "$work/san.$i" | head -3) $(reported "$work/san.$i" | head -12)"
    done
}

[ -x "$gpu/hone_gpu_test" ] || { echo "there is no build/gpu here: build where nvcc is, and bring it"; exit 2; }
case ${1:-some} in
ops | exact | grpo | loop | bars | moonlight | nccl | sanitize | tiles) "$@" ;;
some) ops; tests test_model_exact test_engine_engine test_train million; verify f32; loop 3 ;;
*) echo "sections: ops, exact, grpo, loop, bars, moonlight, nccl, sanitize, tiles"; exit 2 ;;
esac
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
