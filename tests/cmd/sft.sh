#!/bin/bash
# sft.sh - `hone sft` as a user meets it: pairs and conversations, pairs that are too long, validation, resuming.
#   bash tests/cmd/sft.sh build/hone
. tests/cmd/train_common.bash
make_model
for a in 1 2 3 4 5 6 7 8; do
    echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}' >&3
    echo '{"talk":[{"role":"user","content":"'$a+$a'"},{"role":"assistant","content":"#### '$((a + a))'"}]}'
done 3>"$work/pairs.jsonl" >"$work/talks.jsonl"
sft() { (sft_start "$@"); } # sft RUN KEY=VALUE...
sft_start() { # in place of this shell
    local run=$1
    shift
    exec "$hone" sft model.path="$work/model" data.train_files="$work/pairs.jsonl" sft.batch_size=4 sft.max_length=32 train.micro_tokens=256 trainer.threads=1 train.lr=1e-3 \
        trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}
said() { # said RUN CODE PATTERN
    [ "$2" = 1 ] && tail -1 "$work/$1.log" | grep -q "^hone sft: .*$3"
    ok $? "$1: exit code $2, $(tail -1 "$work/$1.log")"
}
tokens() { grep -oE '"train/tokens":[0-9]+' "$work/$1/metrics.jsonl" | head -1; }

# ---- pairs and the same as conversations: the same run
sft pairs trainer.steps=2
ok $? "pairs: $(tail -1 "$work/pairs.log")"
sft talks trainer.steps=2 data.train_files="$work/talks.jsonl" sft.messages_key=talk
ok $? "conversations: $(tail -1 "$work/talks.log")"
cmp -s "$work/pairs/checkpoints/step-000002/model/model.safetensors" "$work/talks/checkpoints/step-000002/model/model.safetensors"
ok $? "a pair and the conversation of the same words train differently"
sft mute trainer.steps=1 sft.messages_key=prompt
said mute $? 'pairs.jsonl line 1: prompt: messages that end with'

# ---- too long: refused; cut on either side; a prompt that leaves no room for its answer
sft long trainer.steps=1 sft.max_length=7
said long $? 'pairs.jsonl, row 0: .* tokens, but sft.max_length is 7'
for side in left right middle; do
    sft cut-$side trainer.steps=1 sft.max_length=7 sft.truncation=$side
    ok $? "$side: $(tail -1 "$work/cut-$side.log")"
done
[ "$(tokens cut-left)" = "$(tokens cut-right)" ]
ok $? "left and right keep another number of tokens: $(tokens cut-left) $(tokens cut-right)"
! cmp -s "$work/cut-left/checkpoints/step-000001/model/model.safetensors" "$work/cut-right/checkpoints/step-000001/model/model.safetensors"
ok $? "left and right cut the same tokens"
sft none trainer.steps=1 sft.max_length=4 sft.truncation=right
said none $? 'no pair of prompt and answer is left'

# ---- validation at the start, when due, and at the end
sft val trainer.steps=3 data.val_files="$work/pairs.jsonl" trainer.val_every=2
ok $? "validation: $(tail -1 "$work/val.log")"
[ "$(grep -oE '"step":[0-9]+|val/loss' "$work/val/metrics.jsonl" | tr '\n' ' ')" = '"step":0 val/loss "step":1 "step":2 val/loss "step":3 val/loss ' ]
ok $? "validated at $(grep -l val/loss "$work/val/metrics.jsonl")"

# ---- told to stop, most of the time in a validation; saved by time
for i in $(seq 40); do cat "$work/pairs.jsonl"; done >"$work/many.jsonl"
stops="trainer.steps=6 data.val_files=$work/many.jsonl trainer.val_every=1 trainer.save_minutes=1e-9"
sft never $stops
ok $? "never stopped: $(tail -1 "$work/never.log")"
untold=0
for i in $(seq 40); do
    [ ! -d "$work/stopped/checkpoints/step-000006" ] || break
    sft_start stopped $stops &
    child=$!
    sleep 0.$((RANDOM % 5))
    kill -TERM $child 2>/dev/null
    { wait $child; } 2>/dev/null
    rc=$?
    [ $rc = 0 ] || [ $rc = 143 ] # before it listens, the signal ends it
    ok $? "stop $i: exit code $rc, $(tail -1 "$work/stopped.log")"
    child=""
    [ -d "$work/stopped/checkpoints" ] && untold=$((untold + $(cat "$work"/stopped/checkpoints/*/state.json | grep -c untold)))
done
sft stopped $stops
ok $? "going on after stops: $(tail -1 "$work/stopped.log")"
same_steps() { # what is told and saved, but for times
    diff <(untimed "$work/never") <(untimed "$work/stopped") >/dev/null
    ok $? "after stops other metrics are told"
    cmp -s "$work/never/checkpoints/step-000006/model/model.safetensors" "$work/stopped/checkpoints/step-000006/model/model.safetensors"
    ok $? "after stops the weights are others"
}
same_steps
[ $untold -gt 0 ] || { skipped=$((skipped + 1)); echo "skipped: no stop met a validation"; }
[ -d "$work/never/checkpoints/step-000005" ]
ok $? "nothing was saved by time"

# ---- going on; with other sums: allowed, and said; with another order of the data: refused
cp -r "$work/pairs" "$work/other"
sft other trainer.steps=3 trainer.leaves=4 && grep -q 'trainer.leaves was 8, is 4' "$work/other/log.txt"
ok $? "other leaves: $(tail -1 "$work/other.log")"
sft pairs trainer.steps=3 trainer.seed=9
said pairs $? 'met its data in another order'
sft pairs trainer.steps=4
ok $? "going on: $(tail -1 "$work/pairs.log")"
sft whole trainer.steps=4
cmp -s "$work/pairs/checkpoints/step-000004/model/model.safetensors" "$work/whole/checkpoints/step-000004/model/model.safetensors"
ok $? "what follows a stop is not what follows without one"
the_end
