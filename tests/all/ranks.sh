#!/bin/bash
# ranks.sh - training over ranks beside training on one, the long list: models of all families (8 heads, 8 layers, experts, half of them with a
# KL to a reference model) on 38 grids of up to 8 ranks, and drawn models on drawn grids with drawn batches; fp8 checkpoints by slice.
# Log-probs and entropies by memcmp, gradients within 2e-5 of a tensor's largest entry, ten updates.
#   bash tests/all/ranks.sh build/hone
. tests/cmd/train_common.bash
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
tests=$(dirname "$hone")/tests
"$tests/train/test_ranks_train" --all >"$work/train" 2>&1
ok $? "test_ranks_train --all: $(grep -a FAILED "$work/train" | cut -c1-400 | head -20)"
"$tests/model/test_ranks" --drawn >"$work/model" 2>&1
ok $? "test_ranks --drawn: $(grep -a FAILED "$work/model" | cut -c1-400 | head -20)"
grep -ahE '^[0-9]+ passed' "$work/train" "$work/model"

# fp8: every rank reads its rows and columns of the blocks and of their scales, wherever a cut falls
fp8=tests/data/models/deepseek_v3_fp8
awk 'BEGIN { srand(4); for (i = 0; i < 19; i++) { n = i % 5 ? int(rand() * 40) + 2 : 1; printf "{\"prompt_length\":1,\"tokens\":[";
    for (k = 0; k < n; k++) printf "%s%d", k ? "," : "", int(rand() * 100); print "]}" } }' >"$work/lines.jsonl"
"$hone" score $fp8 --device cpu --in "$work/lines.jsonl" --batch 64 >"$work/one.jsonl" 2>"$work/err"
for on in "2 tp=2" "4 tp=4" "8 tp=8" "2 pp=2" "3 dp=3" "4 ep=4" "8 ep=8" "8 ep=4,etp=2" "4 cp=4" "8 tp=2,pp=2,ep=4" "8 tp=4,etp=4,dp=2" "6 cp=3,tp=2"; do
    mpirun --allow-run-as-root --oversubscribe -n ${on% *} "$hone" score $fp8 --device cpu --in "$work/lines.jsonl" --batch 64 --grid "${on#* }" \
        >"$work/many.jsonl" 2>"$work/err"
    cmp -s "$work/one.jsonl" "$work/many.jsonl"
    ok $? "fp8 on $on: $(cat "$work/err")"
done
the_end
