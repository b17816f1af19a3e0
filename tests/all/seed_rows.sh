#!/bin/bash
# seed_rows.sh - the eleven published rows (DeepSeek-V3 on 96 to 512 GPUs, Qwen3-235B on 32 to 256, Qwen3-30B on 8 to 32): hone's own recipe of each is
# taken by `hone train --check` on so many ranks, counted rank by rank on a GPU that is not here, and fits into H20-96 with what the plan says; the
# published DeepSeek rows fit too, those of Qwen3 are refused by it as by `hone plan`, with the bytes that are short, there with the smallest change, too.
#   bash tests/all/seed_rows.sh build/hone
hone=$(realpath "$1")
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
[ -f "$(dirname "$hone")/libhone_cuda.so" ] || { echo "0 passed, 0 failed, 1 skipped (no CUDA backend was built)"; exit 0; }
for ((i = 0; i < 512; i++)); do
    echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"1+1"}],"reward_model":{"style":"rule","ground_truth":"2"}}'
done >"$work/questions.jsonl"
# Bytes of each rank: "RANK STAGE GPU HOST WEIGHTS GRADIENTS KV ACTIVATIONS", from lines "rank 7 tp7 cp0 dp0 pp0 ep7 etp0: weights 123, kv 456, ... in all N bytes".
count() {
    awk -F: '/^rank / { split($1, place, " "); n = split($2, part, ","); gpu = host = w = g = kv = act = 0
        for (i = 1; i < n; i++) { k = match(part[i], / [0-9]+$/); name = substr(part[i], 2, k - 2); b = substr(part[i], k + 1) + 0
            if (name ~ /^(reference|optimizer \(host\)|parked|rollout lists|answers|kept sets|validation|packing|checkpoint buffer|small files|loading|pixels)/) host += b
            else gpu += b
            if (name == "weights") w = b
            if (name == "gradients") g = b
            if (name == "kv") kv = b
            if (name == "activations") act = b }
        print place[2], substr(place[6], 3), gpu, host, w, g, kv, act }' "$1"
}
row() { # row RECIPE MODEL RANKS BESIDE: into 96 GB with so many for the driver and NCCL (the plan's 3, if not 2); 0: refused, as by hone plan
    local name=$1 ranks=$3 rc
    mkdir -p "$work/$2"
    cp "tests/data/configs/$2.json" "$work/$2/config.json"
    cp recipes/quickstart/model/tokenizer*.json "$work/$2"
    "$hone" train "recipes/$1.yaml" model.path="$work/$2" data.train_files="$work/questions.jsonl" trainer.device=cuda --check --memory "$3" --all-ranks >"$work/memory" 2>&1
    rc=$?
    grep -q '^checked: ' "$work/memory"
    ok $? "$1 --check: $(tail -1 "$work/memory")"
    if [ "$4" = 0 ]; then [ $rc = 1 ] && grep -q 'does not fit: .* of H20-96 memory .*: short by' "$work/memory"
    else [ $rc = 0 ] && grep -q '^fits H20-96: ' "$work/memory"; fi
    ok $? "$1 --memory: $(tail -1 "$work/memory")"
    "$hone" plan "tests/data/configs/$2.json" --recipe "recipes/$1.yaml" 2>&1 | grep -q 'DOES NOT FIT'
    [ $? = $((($4 != 0))) ]
    ok $? "$1: hone plan says otherwise than hone train --memory"
    count "$work/memory" >"$work/bytes"
    [ "$(wc -l <"$work/bytes")" = "$3" ]
    ok $? "$1: $(wc -l <"$work/bytes") ranks are counted"
    awk -v name="$1" -v fits="$4" '{ if ($3 > gpu) gpu = $3; if ($4 > host) host = $4; node += $4; if (NR % 8 == 0) { if (node > most) most = node; node = 0 } }
        END { printf "%-26s %4d ranks, at most %.1f GB of a GPU, %.0f GB of a node\n", name, NR, gpu / 1e9, most / 1e9; exit !(!fits || (gpu + fits * 1e9 <= 96e9 && most <= 2000e9)) }' "$work/bytes"
    ok $? "$1 does not fit"
}
beside_plan() { # beside_plan RECIPE MODEL: weights, gradients, cache and activations of every rank are those of its stage in the plan;
    # a rollout's weights and cache lie where gradients and activations do in an update, and may want more room than they
    "$hone" plan "tests/data/configs/$2.json" --recipe "recipes/$1.yaml" --json >"$work/plan"
    grep -oE '("engine":[0-9]+,)?"kv cache":[0-9]+|"update":\{[^}]*' "$work/plan" | sed -E 's/.*"weights":([0-9]+),"gradients":([0-9]+).*"activations":([0-9]+).*/g \1 \2 \3/; s/("engine":([0-9]+),)?"kv cache":([0-9]+)/k \3 \2/' >"$work/stages"
    awk 'function off(x, y, by) { return x && (x > (1 + by) * y || x < (1 - by) * y) }
        BEGIN { n = m = 0 }
        FNR == NR { if ($1 == "k") { engine[n] = $3; kv[n++] = $2 } else { w[m] = $2; g[m] = $3; act[m++] = $4 } next }
        { most = engine[$2] + kv[$2] - g[$2]; if (most < act[$2]) most = act[$2] }
        off($5, w[$2], 0.02) || off($6, g[$2], 0.02) || off($7, kv[$2], 0.02) || $8 && ($8 < 0.94 * act[$2] || $8 > 1.06 * most) {
            if (bad++ < 3) print "rank", $1, "of stage", $2 ": weights", $5, w[$2], "gradients", $6, g[$2], "cache", $7, kv[$2], "activations", $8, act[$2] }
        END { exit bad > 0 || !n }' "$work/stages" "$work/bytes"
    ok $? "$1: a rank is not as planned"
}
for r in 96 128 256 512; do row deepseek-v3-$r DeepSeek-V3 $r 3; beside_plan deepseek-v3-$r DeepSeek-V3; row deepseek-v3-$r-published DeepSeek-V3 $r 2; done
for r in 32 64 128 256; do row qwen3-235b-$r Qwen3-235B-A22B $r 3; beside_plan qwen3-235b-$r Qwen3-235B-A22B; row qwen3-235b-$r-published Qwen3-235B-A22B $r 0; done
for r in 8 16 32; do
    row qwen3-30b-$r Qwen3-30B-A3B $r 3
    beside_plan qwen3-30b-$r Qwen3-30B-A3B
    row qwen3-30b-$r-published Qwen3-30B-A3B $r 0
    "$hone" plan tests/data/configs/Qwen3-30B-A3B.json --recipe recipes/qwen3-30b-$r-published.yaml >"$work/plan" 2>&1
    grep -q 'short by 15.8 GB' "$work/plan" && grep -q 'smallest change that helps' "$work/plan"
    ok $? "qwen3-30b-$r-published is not refused: $(tail -2 "$work/plan")"
done
for f in recipes/slurm/*-*.sbatch; do
    r=$(sed -n 's/^exec .* \(recipes[^ ]*\) .*/\1/p' "$f")
    [ "$(sed -n 's/^#SBATCH --nodes=//p' "$f")" = "$(sed -n 's/^  nodes: //p' "$r")" ]
    ok $? "$f: not the nodes of $r"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
