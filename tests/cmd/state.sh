#!/bin/bash
# state.sh - a run that goes on from a state.json that somebody edited: what is missing, of another kind or impossible
# is named in one line, and the run ends with exit code 1; it neither aborts nor goes on from elsewhere.  Weights that
# are no numbers, checkpoints behind links, closed standard streams.  Folders that are no checkpoints' are left alone.
#   bash tests/cmd/state.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 12
cd "$work" || exit 1
for a in 1 2 3 4; do echo '{"prompt":"'$a+1'","response":"'$((a + 1))'"}'; done >pairs.jsonl
sft() { "$hone" sft model.path=model data.train_files=pairs.jsonl sft.batch_size=2 sft.max_length=32 train.micro_tokens=64 trainer.threads=1 trainer.peak_tflops=0.1 trainer.run_dir="$work/$1" "${@:2}" >"$work/$1.log" 2>&1; }
train made trainer.steps=2 trainer.save_every=1
sft taught trainer.steps=2
[ -f made/checkpoints/step-000002/state.json ] && [ -f taught/checkpoints/step-000002/state.json ]
ok $? "no checkpoint: $(tail -n 2 made.log taught.log)"

# remade RUN: manifest.json agrees with state.json again (gzip ends with the CRC-32 and the size)
remade() {
    local dir=$1/checkpoints/step-000002 crc bytes
    read -r crc bytes < <(gzip -c "$dir/state.json" | tail -c 8 | od -An -t u4)
    sed -i -E 's/("state.json":)\{[^}]*\}/\1{"bytes":'$bytes',"crc32":'$crc'}/' "$dir/manifest.json"
}
# edited VERB FROM SED PATTERN: what VERB says to FROM's state once SED went over it
edited() {
    local rc
    rm -rf run
    cp -r "$2" run
    sed -i -E "$3" run/checkpoints/step-000002/state.json
    remade run
    "$1" run trainer.steps=3
    rc=$?
    [ $rc = 1 ] && tail -1 run.log | grep -qE "^hone $1: .*state.json: $4" && ! grep -q 'passed over' run.log
    ok $? "$1 from a state.json after $3: exit code $rc, $(tail -1 run.log)"
}
number() { echo "s/\"$1\":[^,}]*/\"$1\":$2/"; }
without() { echo "s/\"$1\":[^,}]*,//"; }
for both in "train made" "sft taught"; do
    for field in step optimizer_step epoch position data data_seed shuffle leaves; do
        edited $both "$(without $field)" "\"$field\" is missing"
        edited $both "$(number $field null)" "\"$field\" is missing"
        edited $both "$(number $field '"3"')" "\"$field\" must be"
    done
    for field in step optimizer_step epoch position data data_seed leaves; do
        edited $both "$(number $field -3)" "\"$field\" is -3"
        edited $both "$(number $field 0.5)" "\"$field\" must be a whole number"
        edited $both "$(number $field 1e300)" "\"$field\" must be a whole number"
    done
    edited $both "$(number step 3)" '"step" is 3, but the folder is step-000002'
    for field in step optimizer_step epoch; do edited $both "$(number $field 9223372036854775807)" "\"$field\" is 9223372036854775807"; done
    edited $both "$(number position 13)" 'a place in the data .epoch 0, row 13'
    for n in 0 3 64; do edited $both "$(number leaves $n)" "\"leaves\" is $n"; done
    edited $both 's/\}$/,"untold":[]}/' '"untold" must be an object'
    edited $both 's/\}$/,"untold":{"a":"b"}}/' '"untold": "a" must be a number'
    edited $both 's/"found":\{[^}]*\}/"found":3/' '"found" must be an object'
    edited $both "$(number looked -1)" '"looked" is -1'
    edited $both "$(without looked)" '"looked" is missing'
    many=$(seq -s, -f '"m%.0f":1' 3073)
    edited $both "s/\}\$/,\"untold\":{$many}}/" '"untold" has 3073 numbers, at most 3072'
done
edited train made 's/,"kl_coef":[^,}]*//' '"kl_coef" is missing'
for v in -1 1e999; do edited train made "$(number kl_coef $v)" '"kl_coef" is (-1|inf)'; done

# Weights that are no numbers, under checksums that are right: the one before is gone on from, and exported.
crc_of() { gzip -1c | tail -c 8 | od -An -t u4 -N 4 | tr -d ' '; }
sum_of() { # sum_of FILE: manifest.json of run's last checkpoint agrees with it again; its pieces are header and the rest
    local dir=run/checkpoints/step-000002 crc piece at
    at=$(sed -E 's|.*"'$1'":\{[^]]*"offset":([0-9]+),[^]]*\]\}.*|\1|' "$dir/manifest.json")
    crc=$(crc_of <"$dir/$1") piece=$(tail -c +$((at + 1)) "$dir/$1" | crc_of)
    sed -i -E 's|("'$1'":\{"bytes":[0-9]+,"crc32":)[0-9]+(,"pieces":\[[^]]*"crc32":)[0-9]+(\}\]\})|\1'$crc'\2'$piece'\3|' "$dir/manifest.json"
}
poison() { # poison BYTES [FILE [BEFORE]]: the last weight of run's last checkpoint, or what stands so many bytes before it
    local name=${2:-model/model.safetensors} file
    file=run/checkpoints/step-000002/$name
    printf "$1" | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 4 - ${3:-0})) conv=notrunc status=none
    sum_of "$name"
}
rm -rf run
cp -r made run
poison '\000\000\300\177'
"$hone" export run out.model >out.log 2>&1 && grep -q 'step-000002 is passed over: model/model.safetensors has weights that are no finite numbers: the run had diverged' out.log && cmp -s out.model/model.safetensors run/checkpoints/step-000001/model/model.safetensors
ok $? "export of a diverged checkpoint: $(cat out.log)"
"$hone" export run out.two --step 2 >out.log 2>&1
[ $? = 1 ] && grep -q 'no finite numbers' out.log && [ ! -e out.two ]
ok $? "export --step of a diverged checkpoint: $(cat out.log)"
train run trainer.steps=2
ok $? "going on before a diverged checkpoint: $(tail -2 run.log)"
grep -q 'passed over: .*diverged' run.log && grep -q 'going on from .*step-000001' run.log && cmp -s {made,run}/checkpoints/step-000002/model/model.safetensors
ok $? "it does not go on from the one before: $(cat run.log)"
poison '\377\377\177\177' # the largest number is one
"$hone" export run out.two --step 2 >out.log 2>&1
ok $? "a checkpoint with the largest number: $(cat out.log)"

# So are averages that make the next update's weights no numbers; a mean square that is infinite holds one weight still.
# The file ends with the last norm's mean and its mean square, 128 numbers each.
averages() { # averages BEFORE STEP: an infinite one; the run goes on from that step
    rm -rf run
    cp -r made run
    poison '\000\000\200\177' optimizer.safetensors "$1"
    train run trainer.steps=3
    [ $? = 0 ] && grep -q "going on from .*step-00000$2" run.log && [ "$(grep -c 'passed over: optimizer.safetensors has averages that are no finite numbers' run.log)" = $((2 - $2)) ]
    ok $? "an infinite average $1 bytes before the end: $(grep -h 'passed\|going on' run.log) $(tail -1 run.log)"
}
averages 512 1
averages 0 2

# A checkpoint that was moved to another disk, with a link in its place: pruning takes the link.
rm -rf run
cp -r made run
mv run/checkpoints/step-000001 moved
ln -s "$PWD/moved" run/checkpoints/step-000001
train run trainer.steps=3 trainer.keep=1
[ $? = 0 ] && [ "$(ls run/checkpoints)" = step-000003 ] && cmp -s {moved,made/checkpoints/step-000001}/model/model.safetensors && [ -f moved/manifest.json ]
ok $? "behind the link of a pruned checkpoint: $(ls run/checkpoints moved) $(tail -1 run.log)"
rm -rf run
mkdir run
ln -s /no/where run/checkpoints # known before anything is loaded, not at the first save
train run trainer.steps=3 --check
[ $? = 1 ] && grep -q 'run/checkpoints is no folder that can be written to: nothing could be saved' run.log
ok $? "a link for checkpoints that leads nowhere: $(cat run.log)"

# Closed standard streams: what is opened first does not take their place.
rm -rf run
(exec >&- && train_to_closed() { exec "$hone" train model.path=model data.train_files=sums.jsonl data.train_batch_size=4 rollout.n=2 data.max_prompt_length=16 data.max_response_length=4 train.micro_tokens=128 trainer.threads=1 trainer.peak_tflops=0.1 reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.run_dir=run trainer.steps=1 2>err; } && train_to_closed)
ok $? "train with standard output closed: $(cat err)"
[ "$(wc -l <run/lock)" = 1 ] && grep -qE '^[0-9]+$' run/lock && [ -d run/checkpoints/step-000001 ]
ok $? "the lock holds what was printed: $(head -c 300 run/lock)"
(exec <&- >&- 2>&- && exec "$hone" data copy --in sums.jsonl --out copy.jsonl)
[ $? = 0 ] && [ "$(wc -l <copy.jsonl)" = 12 ]
ok $? "data copy with all closed: $(head -c 200 copy.jsonl)"

# Other folders beside the checkpoints.
rm -rf run
cp -r made run
for name in step--3 step-+00007 step-9 step-0000003 step-99999999999999999999 "step- 00004" step-000009x .old-step--3; do mkdir "run/checkpoints/$name"; done
train run trainer.steps=3 trainer.keep=1
ok $? "a run beside odd folders: $(tail -1 run.log)"
! grep -q 'passed over' run.log && grep -q 'going on from .*step-000002' run.log
ok $? "odd folders are taken for checkpoints: $(grep -a 'passed over' run.log)"
[ "$(ls run/checkpoints | grep -c 'step-')" = 8 ] && [ -d run/checkpoints/step-000003 ]
ok $? "odd folders, and the newest checkpoint, stay: $(ls run/checkpoints)"
the_end
