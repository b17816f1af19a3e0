#!/bin/bash
# vision_ranks.sh - a model that takes pictures over ranks: log-probs and answers are one rank's bytes on every grid,
# gradients those of the golden models, a run is exact on every step, takes the memory that --memory counts, and goes on
# on another grid.  bash tests/all/vision_ranks.sh build/hone
hone=$(realpath "$1")
root=$(pwd) passed=0 failed=0
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (no mpirun)"; exit 0; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
ranks() { timeout 300 mpirun --allow-run-as-root --oversubscribe -n "$@"; }
recipe=$root/recipes/quickstart-vision
cp tests/data/vision/{photo,half,same,wide,palette,tall}.png tests/data/vision/{jpeg420.jpg,lossy.webp} "$tmp"
cd "$tmp" || exit 1
"$hone" random "$recipe/model/config.json" model --seed 3 >/dev/null 2>&1 && cp "$recipe"/model/*.json model/

# ---- score and generate: the bytes of one rank
awk 'BEGIN { srand(5); n = split("photo.png half.png same.png wide.png palette.png tall.png jpeg420.jpg lossy.webp", f, " ")
    for (i = 0; i < 24; i++) { s = ""; for (j = 0; j < i % 4; j++) s = s "{\"type\":\"image\",\"image\":\"" f[1 + int(rand() * n)] "\"},"
        printf "{\"messages\":[{\"role\":\"user\",\"content\":[%s{\"type\":\"text\",\"text\":\"which colour?\"}]}%s]}\n", s, i % 2 ? ",{\"role\":\"assistant\",\"content\":\"where is it?\"}" : "" } }' >all.jsonl
grep assistant all.jsonl >pairs.jsonl
grep -v assistant all.jsonl >ask.jsonl
"$hone" score model --in pairs.jsonl --out one.jsonl 2>log
ok $? "score on one rank: $(tail -1 log)"
for grid in "2 tp=2" "2 pp=2" "2 dp=2" "2 cp=2" "4 tp=4" "4 tp=2,pp=2" "4 tp=2,cp=2" "4 pp=2,cp=2" "4 cp=4" "8 tp=2,pp=2,cp=2"; do
    set -- $grid
    ranks $1 "$hone" score model --in pairs.jsonl --out got.jsonl --grid $2 2>log
    ok $(cmp -s one.jsonl got.jsonl; echo $?) "score on $2 gives one rank's bytes: $(grep hone log | head -1)"
done
sampling="--in ask.jsonl --n 3 --seed 5 --max-tokens 12 --page 16"
"$hone" generate model $sampling --out one.jsonl 2>log
ok $? "generate on one rank: $(tail -1 log)"
for grid in "2 tp=2" "2 dp=2" "4 tp=2,dp=2" "4 tp=4"; do
    set -- $grid
    ranks $1 "$hone" generate model $sampling --out got.jsonl --grid $2 2>log
    ok $(cmp -s one.jsonl got.jsonl; echo $?) "generate on $2 gives one rank's bytes: $(grep hone log | head -1)"
done

# ---- verify: log-probs, gradients, optimizer steps of both golden models
for model in qwen2_5_vl qwen2_5_vl_clips; do
    for grid in "2 tp=2" "2 pp=2" "2 dp=2" "2 cp=2" "4 tp=2,pp=2" "4 tp=2,cp=2" "4 dp=2,cp=2"; do
        set -- $grid
        ranks $1 "$hone" verify "$root/tests/data/models/$model" --grid $2 >log 2>&1
        ok $? "verify $model on $2: $(grep -i fail log | head -2)"
    done
done

# ---- train: exact on every step, in the memory that was counted; the first steps' answers are one rank's; a frozen tower too
"$hone" data shapes --out train.parquet --n 64 --seed 1 2>/dev/null
conf="$recipe/grpo.yaml model.path=model data.train_files=[train.parquet] data.train_batch_size=16 trainer.val_every=0 trainer.save_every=2 trainer.steps=4 trainer.threads=1"
"$hone" train $conf trainer.run_dir=one >log 2>&1
ok $? "train on one rank: $(tail -1 log)"
sum() { grep -o '"critic/score/mean":[^,}]*' "$1/metrics.jsonl" | head -1; }
for grid in "2 grid.tp=2" "2 grid.pp=2" "2 grid.cp=2" "2" "4 grid.tp=2 grid.pp=2 rollout.grid.tp=2" "4 grid.cp=2 rollout.grid.tp=4" "2 grid.tp=2 train.freeze_tower=true"; do
    set -- $grid
    n=$1
    shift
    rm -rf run
    ranks $n "$hone" train $conf trainer.run_dir=run "$@" >log 2>&1
    ok $? "train on $n ranks, $*: $(grep "^hone" log | head -1)"
    ok $(grep -q "largest difference of a log-prob 0, over" log; echo $?) "exact on $n ranks, $*: $(grep difference log)"
    ok $([ "$(sum run)" = "$(sum one)" ]; echo $?) "the first step's scores on $n ranks, $*: $(sum run), $(sum one)"
    "$hone" train $conf trainer.run_dir=not_made "$@" --memory $n --all-ranks 2>/dev/null | grep -a '^rank ' >counted
    ok $([ -s counted ] && cmp -s counted <(grep -a '^rank ' run/memory.txt); echo $?) "the memory that was counted, on $n ranks, $*"
done
ranks 2 "$hone" train $conf trainer.run_dir=one trainer.steps=6 grid.tp=2 >log 2>&1
ok $? "one rank's run goes on on two: $(grep "^hone" log | head -1)"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
