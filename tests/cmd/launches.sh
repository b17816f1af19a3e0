#!/bin/bash
# launches.sh - the CUDA backend's host part at the size of its models, without a GPU: `--memory` of the recipes for 671B,
# 235B, 30B and smaller models runs every rank's forward, backward, AdamW and decoding (captured, too) over a runtime that
# computes nothing (tests/shim/cudart).  Each launch is held against sm_90's limits, the kernel's own and the memory
# there is; what is counted that way must be, byte for byte, what the dry device counts.
#   bash tests/cmd/launches.sh build/hone [normal | all]
. tests/cmd/train_common.bash
mode=$2
counted=$(dirname "$hone")/shims/cudart/hone
[ -x "$counted" ] || { echo "0 passed, 0 failed, 1 skipped (without nvcc there is no CUDA backend)"; exit 0; }
begin=$SECONDS
cd "$work" || exit 1
for m in DeepSeek-V3 Qwen3-235B-A22B Qwen3-30B-A3B Moonlight-16B-A3B Mixtral-8x7B Qwen2.5-7B; do
    mkdir -p models/$m
    cp "$repo/tests/data/configs/$m.json" models/$m/config.json
    cp "$repo"/recipes/quickstart/model/tokenizer*.json models/$m/
done
for ((i = 0; i < 1100; i++)); do
    echo '{"data_source":"math_dapo","prompt":[{"role":"user","content":"1+1"}],"reward_model":{"style":"rule","ground_truth":"2"}}'
done >sums.jsonl
memory() { # memory HONE RECIPE[,KEY=VALUE]: of as many ranks as its name says
    local recipe=${2%%,*} words n
    words=${2#"$recipe"} n=${recipe%-published}
    "$1" train "$repo/recipes/$recipe.yaml" ${words#,} data.train_files=[sums.jsonl] trainer.device=cuda trainer.run_dir=none --check --memory "${n##*-}" --all-ranks 2>&1
    echo "code $?"
}
recipes="deepseek-v3-96 qwen3-235b-32 qwen3-30b-8 qwen3-30b-16-published moonlight-24 moonlight-24-published qwen2.5-7b-8 mixtral-8x7b-32"
[ "$mode" != all ] || recipes="$(cd "$repo/recipes" && ls *-*.yaml | sed 's/.yaml//' | grep -vE -- '-(256|512)(-published)?$') deepseek-v3-96,rollout.top_k=50"
for r in $recipes qwen3-30b-8,trainer.compute=f32 moonlight-24,trainer.compute=f32; do
    memory "$hone" "$r" >dry
    CUDART_COUNT=count.$r memory "$counted" "$r" >cuda
    cmp -s dry cuda && grep -q '^rank 7 .* in all [0-9]* bytes' cuda
    ok $? "$r: $(grep -a 'shim:' cuda; diff dry cuda | head -4)"
done
# a card with fewer multiprocessors (H20) takes what is counted, or less scratch
CUDART_SMS=78 memory "$counted" qwen3-30b-8 >few
memory "$hone" qwen3-30b-8 >dry
but_scratch() { sed -E 's/scratch [0-9]+//; s/in all [0-9]+//' "$1"; }
scratch() { grep -oE 'scratch [0-9]+' "$1" | cut -d' ' -f2; }
cmp -s <(but_scratch few) <(but_scratch dry) && paste <(scratch few) <(scratch dry) | awk '$1 > $2 { bad = 1 } END { exit bad || NR != 8 }'
ok $? "78 multiprocessors: $(grep -a 'shim:' few)"
kernels=$(cat count.* | grep -E '^[0-9]+ _Z' | cut -d' ' -f2 | sort -u | wc -l)
[ "$kernels" -ge 100 ]
ok $? "only $kernels kernels were launched"
# ---- faults
planted() { # planted NAME=VALUE PATTERN
    env "$1" bash -c "$(declare -f memory); repo=$repo; memory $counted qwen3-30b-8" >log 2>&1
    ! grep -q 'code 0' log && grep -qE "$2" log
    ok $? "planted $1: no '$2' in $(grep -a 'shim:' log)"
}
planted CUDART_SMEM=166912 'cudart shim: .* asks for [0-9]+ \+ [0-9]+ bytes of shared memory, 166912 are there'
planted CUDART_SHORT=10000000 'cudart shim: .* parameter [0-9]+, byte [0-9]+: [0-9a-f]+ is in no block'
planted CUDART_SHORT=2000000000 'cudart shim: .* a map of [0-9]+ bytes at [0-9a-f]+, which are in no block'
echo "$(cat count.* | awk '/launches of/ { n += $1 } END { print n }') launches of $kernels kernels, $((SECONDS - begin)) s"
the_end
