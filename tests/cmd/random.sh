#!/bin/bash
# random.sh - model.random and --random: weights from a seed and config.json are those that `hone random` would write,
# for scoring, sampling and training.
#   bash tests/cmd/random.sh build/hone [quick|normal|all]
. tests/cmd/train_common.bash
make_model # of seed 3
make_sums 81
cp -r recipes/quickstart/model "$work/bare"
echo '{"tokens":[1,2,3,4,5,60,70]}' >"$work/in.jsonl"
for verb in score generate; do
    "$hone" $verb "$work/model" --in "$work/in.jsonl" --device cpu >"$work/files" && "$hone" $verb "$work/bare" --random 3 --in "$work/in.jsonl" --device cpu >"$work/seed"
    ok $? "hone $verb --random"
    cmp -s "$work/files" "$work/seed"
    ok $? "hone $verb --random 3 is not the model that hone random --seed 3 writes"
done
"$hone" score "$work/bare" --random 4 --in "$work/in.jsonl" --device cpu | cmp -s - "$work/files"
ok $((! $?)) "another seed gives the same"
"$hone" score "$work/bare" --in "$work/in.jsonl" --device cpu >/dev/null 2>"$work/err"
ok $((! $?)) "a folder without weights was scored"

weights() { find "$work/$1/checkpoints" -name model.safetensors | sort | tail -1; }
train from_files trainer.steps=2 trainer.device=cpu train.use_kl_loss=true
ok $? "a run from files: $(tail -1 "$work/from_files.log")"
train from_seed trainer.steps=2 trainer.device=cpu train.use_kl_loss=true model.path="$work/bare" model.random=3
ok $? "a run from a seed: $(tail -1 "$work/from_seed.log")"
cmp -s "$(weights from_files)" "$(weights from_seed)"
ok $? "two steps from files and from a seed end in other weights"
train each trainer.steps=1 trainer.device=cpu model.path="$work/bare" model.random=3 reward.library="$(dirname "$hone")/scorers/each.so"
expect "no answer is silent" "$work/each/metrics.jsonl" '"perf/silent_ratio":0[,}]'
the_end
