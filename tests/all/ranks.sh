#!/bin/bash
# ranks.sh - training over ranks beside training on one, the long list: models of all families (8 heads, 8 layers, experts, half of them with a
# KL to a reference model) on 38 grids of up to 8 ranks, and drawn models on drawn grids with drawn batches; fp8 checkpoints by slice; 50 kills while
# ranks save, 10 of a run of sft.
# Log-probs and entropies by memcmp, gradients within 2e-5 of a tensor's largest entry, ten updates.
#   bash tests/all/ranks.sh build/hone
. tests/cmd/train_common.bash
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
tests=$(dirname "$hone")/tests
"$tests/train/test_ranks_train" --all >"$work/train" 2>&1
ok $? "test_ranks_train --all: $(grep -a FAILED "$work/train" | cut -c1-400 | head -20)"
"$tests/model/test_ranks" --drawn >"$work/drawn" 2>&1
ok $? "test_ranks --drawn: $(grep -a FAILED "$work/drawn" | cut -c1-400 | head -20)"
"$tests/train/test_ranks_checkpoint" 50 >"$work/saves" 2>&1
ok $? "test_ranks_checkpoint, 50 kills: $(grep -a FAILED "$work/saves" | cut -c1-400 | head -20)"
grep -ahE '^[0-9]+ passed' "$work/train" "$work/drawn" "$work/saves"

# a run of sft on 4 ranks, killed ten times, ends with the bytes of one that never was
make_model
for a in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
sft_start() { # sft_start RUN: in place of this shell
    exec mpirun --allow-run-as-root --oversubscribe -n 4 "$hone" sft model.path="$work/model" data.train_files="$work/pairs.jsonl" trainer.device=cpu sft.batch_size=8 \
        sft.max_length=32 train.micro_tokens=64 trainer.threads=1 train.lr=1e-3 trainer.steps=13 trainer.save_every=1 trainer.keep=99 trainer.tensorboard=false \
        grid.tp=2 grid.pp=2 trainer.run_dir="$work/$1" >"$work/$1.log" 2>&1
}
(sft_start whole)
ok $? "sft: $(tail -1 "$work/whole.log")"
for ((k = 1; k <= 10; k++)); do
    sft_start killed &
    child=$!
    wait_lines killed $k
    [ $((k % 2)) = 0 ] && sleep 0.0$((RANDOM % 10))
    victim=$(shuf -n1 -e $child $(pgrep -P $child)) # the launcher or a rank
    kill -9 "$victim"
    ok $? "sft: kill $k came too late"
    wait $child 2>/dev/null
    child=""
    while pgrep -f "trainer.run_dir=$work/killed" >/dev/null; do sleep 0.1; done
done
(sft_start killed)
ok $? "sft after 10 kills: $(tail -1 "$work/killed.log")"
touch "$work/whole/samples.jsonl" "$work/killed/samples.jsonl"
same_run whole killed 13 "sft after 10 kills"

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
