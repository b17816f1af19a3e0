#!/bin/bash
# verl_published.sh - the three scripts that verl publishes for DeepSeek-V3, Qwen3-235B and Qwen3-30B, with every row of
# its tables: imported with no setting left unexplained, they are recipes/*-published.yaml in every setting that both
# have. (Where the files lie is everybody's own.)
#   bash tests/all/verl_published.sh build/hone FOLDER...     a FOLDER with the scripts below it; VERL=FOLDER[:FOLDER...] names more
hone=$1
folders=("${@:2}")
IFS=: read -r -a more <<<"$VERL"
folders+=("${more[@]}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 skipped=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }

# section.key=value, a line each, numbers all in one form
flat() {
    awk '{ sub(/ +#.*/, "") } /^#/ || !NF { next }
         { match($0, /^ */); depth = RLENGTH / 2; key = $1; sub(/:$/, "", key); path[depth] = key; value = $0; sub(/^ *[a-z_]+: */, "", value) }
         value == "" { next }
         { gsub(/"/, "", value) }
         { name = ""; for (i = 0; i <= depth; i++) name = name (i ? "." : "") path[i]
           if (value ~ /^[-+]?[0-9.]+(e[-+]?[0-9]+)?$/) value = value + 0
           if (name == "model.path") next
           if (name ~ /_files$/) { gsub(/[][]/, "", value); sub(/.*\//, "", value) }
           print name "=" value }' "$1" | grep -v '^plan\.' | sort
}
while read -r script model recipe variables; do
    path=""
    for f in "${folders[@]}"; do [ -n "$path" ] || path=$(find "$f" -name "$script" 2>/dev/null | head -1); done
    if [ -z "$path" ]; then skipped=$((skipped + 1)); continue; fi
    "$hone" import-verl "$path" $variables --model "tests/data/configs/$model.json" --strict --out "$scratch/run.yaml" >"$scratch/report" 2>"$scratch/notes"
    ok $? "$script $variables: $(tail -1 "$scratch/notes")"
    flat "$scratch/run.yaml" >"$scratch/got"
    flat "recipes/$recipe-published.yaml" >"$scratch/want"
    both=$(join -t= -j 1 -o 0 "$scratch/got" "$scratch/want" | wc -l)
    [ "$both" -ge 20 ]
    ok $? "$recipe: only $both settings in common"
    other=$(join -t= -j 1 -o 0,1.2,2.2 "$scratch/got" "$scratch/want" | awk -F= '$2 != $3 { print $1 ": " $2 ", published " $3 }')
    [ -z "$other" ]
    ok $? "$recipe: $other"
    # every word of the launch that sets something is in one of the report's parts
    words=$("$hone" import-verl "$path" $variables --args 2>/dev/null | sed 's/", "/\n/g' | grep -cE '^\+{0,2}[a-z_]+\.[a-z_.0-9]+=')
    rows=$(grep -cE '^ +[0-9]+  [a-z]' "$scratch/report")
    [ "$words" -gt 50 ] && [ "$words" = "$rows" ]
    ok $? "$script: $words settings, $rows rows in the report"
    "$hone" plan "tests/data/configs/$model.json" --recipe "$scratch/run.yaml" --cluster "$(sed -n 's/^  cluster: //p' "recipes/$recipe-published.yaml")" >"$scratch/plan" 2>&1
    rc=$?
    [ $rc -le 1 ] && ! grep -q '^hone' "$scratch/plan" && grep -qi 'step' "$scratch/plan"
    ok $? "$recipe: plan says $rc: $(tail -2 "$scratch/plan")"
    echo "$recipe: $both settings in common, $words in the script"
done <<'END'
run_deepseek671b_math_megatron_96gb.sh DeepSeek-V3 deepseek-v3-96 NNODES=12 TP=8 PP=12 EP=8 OFFLOAD_FRACTION=1. OFFLOAD_OPTIM=False LAST_LAYER=6
run_deepseek671b_math_megatron_96gb.sh DeepSeek-V3 deepseek-v3-128 NNODES=16 TP=8 PP=16 EP=8 OFFLOAD_FRACTION=0.5 OFFLOAD_OPTIM=True LAST_LAYER=1
run_deepseek671b_math_megatron_96gb.sh DeepSeek-V3 deepseek-v3-256 NNODES=32 TP=8 PP=16 EP=8 OFFLOAD_FRACTION=0. OFFLOAD_OPTIM=True LAST_LAYER=1
run_deepseek671b_math_megatron_96gb.sh DeepSeek-V3 deepseek-v3-512 NNODES=64 TP=1 PP=16 EP=32 OFFLOAD_FRACTION=0 OFFLOAD_OPTIM=True LAST_LAYER=1
run_qwen3-235b_megatron_96gb.sh Qwen3-235B-A22B qwen3-235b-32 NNODES=4 TP=4 PP=8 EP=4 OFFLOAD_FRACTION=1. OFFLOAD_OPTIM=False LAST_LAYER=6
run_qwen3-235b_megatron_96gb.sh Qwen3-235B-A22B qwen3-235b-64 NNODES=8 TP=4 PP=8 EP=4 OFFLOAD_FRACTION=0.5 OFFLOAD_OPTIM=True LAST_LAYER=6
run_qwen3-235b_megatron_96gb.sh Qwen3-235B-A22B qwen3-235b-128 NNODES=16 TP=4 PP=8 EP=4 OFFLOAD_FRACTION=0 OFFLOAD_OPTIM=True LAST_LAYER=6
run_qwen3-235b_megatron_96gb.sh Qwen3-235B-A22B qwen3-235b-256 NNODES=32 TP=4 PP=8 EP=4 OFFLOAD_FRACTION=0 OFFLOAD_OPTIM=True LAST_LAYER=6
run_qwen3moe-30b_megatron_96gb.sh Qwen3-30B-A3B qwen3-30b-8 NNODES=1 TP=1 PP=1 EP=8 OFFLOAD_FRACTION=1. OFFLOAD_OPTIM=True
run_qwen3moe-30b_megatron_96gb.sh Qwen3-30B-A3B qwen3-30b-16 NNODES=2 TP=1 PP=1 EP=8 OFFLOAD_FRACTION=1. OFFLOAD_OPTIM=True
run_qwen3moe-30b_megatron_96gb.sh Qwen3-30B-A3B qwen3-30b-32 NNODES=4 TP=1 PP=1 EP=8 OFFLOAD_FRACTION=1. OFFLOAD_OPTIM=True
END
[ $((passed + failed)) != 0 ] || { echo "the scripts are not here: name a folder that has them"; exit 77; }
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
