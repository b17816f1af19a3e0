#!/bin/bash
# kills.sh - a run of 30 steps is killed (-9) twenty times at random moments, some of them while it saves (through a
# buffer that holds a hundredth of it, every other time), and resumed each time: it ends as the run that was never
# killed, byte for byte.
#   bash tests/all/kills.sh build/hone [DIR]
. tests/cmd/train_common.bash
make_model
make_sums 324
steps="trainer.steps=30 trainer.save_every=1 trainer.keep=2 train.use_kl_loss=true algo.kl_in_reward=true algo.kl_control=adaptive train.epochs=2 train.mini_batch_size=2 train.shuffle=true train.schedule=cosine train.warmup_steps=5"
start_time=$SECONDS
train whole $steps "data.val_files=[$work/sums.jsonl]" data.val_max_samples=6 trainer.val_every=7
ok $? "the run that is never killed: $(tail -1 "$work/whole.log")"
all_exact whole
ok $? "exact/max_abs_logprob_diff is not 0 on every step"
kills=0 saving=0 tries=0
while [ $kills -lt 20 ] && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    done_steps=$(lines "$work/killed/metrics.jsonl")
    buffer=$((tries % 2 ? 300000 : 268435456))
    start killed $steps trainer.save_buffer=$buffer "data.val_files=[$work/sums.jsonl]" data.val_max_samples=6 trainer.val_every=7 &
    child=$!
    # a third at once, in the middle of opening or reading; a third with the next line; a third as soon as a save has
    # begun
    case $((RANDOM % 3)) in
    0) sleep 0.$((RANDOM % 4))$((RANDOM % 10)) ;;
    1) wait_lines killed $((done_steps + 1)); sleep 0.00$((RANDOM % 10)) ;;
    2) while ! compgen -G "$work/killed/checkpoints/.writing-*" >/dev/null && kill -0 $child 2>/dev/null; do :; done ;;
    esac
    if kill -9 $child 2>/dev/null; then
        kills=$((kills + 1))
        compgen -G "$work/killed/checkpoints/.writing-*" >/dev/null && saving=$((saving + 1))
    fi
    { wait $child; } 2>/dev/null
    child=""
    [ "$(lines "$work/killed/metrics.jsonl")" -lt 31 ] || rm -rf "$work/killed/checkpoints/step-000030" "$work/killed/checkpoints/step-000029" # over too soon: back
    [ -d "$work/killed/checkpoints" ] && [ -z "$(ls "$work/killed/checkpoints")" ] && rm -rf "$work/killed"
done
[ $kills = 20 ] && [ $saving -gt 0 ]
ok $? "$kills kills, $saving of them while saving"
train killed $steps "data.val_files=[$work/sums.jsonl]" data.val_max_samples=6 trainer.val_every=7
ok $? "resuming after $kills kills: $(tail -1 "$work/killed.log")"
same_run whole killed 30 "after $kills kills"
echo "$kills kills ($saving while saving) of a run of 30 steps in $((SECONDS - start_time)) s"
the_end
