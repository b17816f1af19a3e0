#!/bin/bash
# differs.sh - a run whose sampler is wrong (tests/shim/differs.c): it stops before the update with exit code 3, or warns
# and goes on; what it leaves in RUN/difference is enough to name the op.
#   bash tests/cmd/differs.sh build/hone
. tests/cmd/train_common.bash
well=$hone wrong=$(dirname "$hone")/shims/hone_differs
[ -x "$wrong" ] || { echo "0 passed, 0 failed, 1 skipped (shims/hone_differs was not built)"; exit 0; }
make_model
make_sums 12
short="trainer.steps=4 trainer.save_every=1 trainer.keep=9 trainer.val_every=0 trainer.tensorboard=false trainer.device=cpu"
planted() { # planted OP:ROWS:FROM[:RANK] RANKS RUN KEY=VALUE...: exit code in $rc
    local plant=$1 launch=$(under_ranks "$2")
    shift 2
    (export PLANT=$plant hone=$wrong launch; train "$@" $short reward.library="$(dirname "$well")/scorers/low_bytes.so")
    rc=$?
}
whole() { # whole RUN: RUN/difference has all that the finder needs
    local f
    for f in difference.json micro.safetensors config.yaml model/config.json model/model.safetensors model/tokenizer.json; do
        [ -s "$work/$1/difference/$f" ]
        ok $? "$1: no difference/$f"
    done
    [ ! -e "$work/$1/difference.tmp" ]
    ok $? "$1: difference.tmp is left"
}

# ---- stop: 48 calls of attention a step, so the fault comes in step 3
train well $short
ok $? "a run that is well: $(tail -1 "$work/well.log")"
[ ! -e "$work/well/difference" ]
ok $? "a run that is well has a folder of differences"
planted attend_kv:1000:100 1 bad
[ $rc = 3 ]
ok $? "exit code $rc"
expect "stop" "$work/bad.log" '^hone train: step 3, rank 0: token [0-9]+ of the answer \(row [0-9]+, sample [0-3]\) had log-prob -[0-9.]+ when it was drawn and has -[0-9.]+ in the trainer'
expect "stop" "$work/bad/log.txt" 'hone verify --blame '
whole bad
[ "$(ls "$work/bad/checkpoints" | tail -1)" = step-000002 ] && [ "$(lines "$work/bad/metrics.jsonl")" = 2 ]
ok $? "the step was applied: $(ls "$work/bad/checkpoints")"
cmp "$work/bad/difference/model/model.safetensors" "$work/well/checkpoints/step-000002/model/model.safetensors"
ok $? "the weights are not those that computed it"
train bad $short
ok $? "gone on with a program that is well: $(tail -1 "$work/bad.log")"
same_run well bad 4 "gone on behind a difference"

# ---- not saved yet: what the steps before did is saved
planted attend_kv:1000:100 1 unsaved trainer.save_every=100
[ $rc = 3 ] && cmp "$work/unsaved/checkpoints/step-000002/optimizer.safetensors" "$work/well/checkpoints/step-000002/optimizer.safetensors"
ok $? "exit code $rc, $(ls "$work/unsaved")"

# ---- warn: once, and the count in the metrics
planted attend_kv:1000:100 1 warned trainer.on_difference=warn
[ $rc = 0 ] && [ "$(lines "$work/warned/metrics.jsonl")" = 4 ]
ok $? "warn: exit code $rc, $(tail -1 "$work/warned.log")"
[ "$(grep -c 'WARNING: step 3' "$work/warned/log.txt")" = 1 ] && [ "$(grep -c WARNING "$work/warned.log")" = 1 ]
ok $? "warned: $(grep WARNING "$work/warned.log")"
[ "$(grep -cE '"exact/tokens_different":[1-9]' "$work/warned/metrics.jsonl")" = 2 ] && ! grep -q different "$work/well/metrics.jsonl"
ok $? "warned: $(grep -o '"exact[^,]*' "$work/warned/metrics.jsonl")"
whole warned

# ---- the op is found by a program that is still wrong, from the folder alone; one that is well computes the same twice
blame() { # blame PROGRAM FOLDER CODE PATTERN
    "$1" verify --blame "$2" --threads 1 >"$work/blamed" 2>&1
    rc=$?
    [ $rc = "$3" ]
    ok $? "$2: exit code $rc"
    expect "blame $2" "$work/blamed" "$4"
}
for fault in "linear layer 0, attention: op_linear is the first op whose output differs: row [0-9]+ of sequence [0-9] .*in column [0-9]+ -?[0-9.]+ when drawn and" \
    "embed embedding: op_embed is" "rope layer 0, attention: op_rope is"; do
    op=${fault%% *}
    planted "$op:16:1" 1 "$op" rollout.top_p=0.95 train.recompute=full
    [ $rc = 3 ]
    ok $? "$op: exit code $rc, $(tail -1 "$work/$op.log")"
    mv "$work/model" "$work/gone" && mv "$work/$op/difference" "$work/moved"
    PLANT=$op:16:1 blame "$wrong" "$work/moved" 1 "^${fault#* }"
    blame "$well" "$work/moved" 0 "^run again both ways agree, bit for bit: what the run's sampler had was wrong"
    mv "$work/gone" "$work/model" && mv "$work/moved" "$work/$op/difference"
done
blame "$well" "$work/well" 1 '^hone verify: .*/well has no difference/difference.json: no log-probs differed in this run$'
for broken in 's/"tokens":[0-9]+/"tokens":1/' 's/"prompt":[0-9]+/"prompt":99/' 's/"leaves":8/"leaves":0/' 's/"page":16/"page":8/' \
    's/"sequences"/"sequence_"/' 's/"temperature":1/"temperature":-1/' 's/"pictures":\[\]/"pictures":[{"picture":0,"at":1}]/' '3s/"pictures":\[\]/"pictures":[{"picture":0,"at":1}]/' 's/\{//'; do
    cp -r "$work/rope/difference" "$work/broken"
    sed -i -E "$broken" "$work/broken/difference.json"
    blame "$well" "$work/broken" 1 '^hone verify: .*broken/(difference.json|micro.safetensors).*'
    rm -r "$work/broken"
done
head -c 300 "$work/rope/difference/micro.safetensors" >"$work/cut" && mv "$work/cut" "$work/rope/difference/micro.safetensors"
blame "$well" "$work/rope" 1 '^hone verify: .*micro.safetensors'

# ---- pictures: the folder has their pixels; a fault in the tower is the tower's
seeing=$repo/recipes/quickstart-vision
"$well" random "$seeing/model/config.json" "$work/eyes" --seed 1 >/dev/null 2>&1 && cp "$seeing"/model/*.json "$work/eyes"
"$well" data shapes --out "$work/shapes.parquet" --n 8 --seed 1 2>/dev/null
PLANT=gelu:100:1 "$wrong" train "$seeing/grpo.yaml" model.path="$work/eyes" "data.train_files=[$work/shapes.parquet]" "data.val_files=[]" \
    data.train_batch_size=4 rollout.n=4 trainer.steps=1 trainer.threads=1 trainer.run_dir="$work/seen" $short >"$work/seen.log" 2>&1
[ $? = 3 ]
ok $? "pictures: $(tail -1 "$work/seen.log")"
mv "$work/shapes.parquet" "$work/eyes" "$work/well"
PLANT=gelu:100:1 blame "$wrong" "$work/seen" 1 '^vision tower, whose rows are laid among the text.s: op_embed is'
blame "$well" "$work/seen" 0 '^run again both ways agree'
head -c 2000 "$work/seen/difference/micro.safetensors" >"$work/cut" && mv "$work/cut" "$work/seen/difference/micro.safetensors"
blame "$well" "$work/seen" 1 '^hone verify: .*micro.safetensors'

# ---- ranks stop together, whichever of them is wrong
if command -v mpirun >/dev/null && [ -f "$(dirname "$well")/libhone_mpi.so" ]; then
    export ASAN_OPTIONS=detect_leaks=0 # what MPI keeps to its end is not a leak of ours
    for how in "2 1 grid.tp=2" "4 3 grid.tp=2 grid.pp=2 rollout.grid.tp=4"; do
        set -- $how
        run=ranks$1_$2
        planted attend_kv:1000:60:$2 $1 $run "${@:3}"
        [ $rc = 3 ] && [ "$(grep -c 'in the trainer, at the same weights' "$work/$run.log")" = 1 ]
        ok $? "$how: exit code $rc, $(tail -3 "$work/$run.log")"
        whole $run
    done
    PLANT=attend_kv:1000:1 blame "$wrong" "$work/ranks4_3" 1 '^layer 0, attention: op_attend \(drawing: attend_kv'
    blame "$well" "$work/ranks2_1" 0 '^run again both ways agree'

else
    skipped=$((skipped + 1)) # there is no mpirun
fi
the_end
