#!/bin/bash
# park.sh - where a run keeps its memory changes no byte of it: optimizer states parked while answers are sampled, on
# the host in any share, saved piece by piece meanwhile; a reference that is parked between its passes; weights and
# states in any format, going on from a checkpoint.
#   bash tests/cmd/park.sh build/hone [quick|normal|all]
. tests/cmd/train_common.bash
make_model
make_sums 40
common="trainer.steps=4 trainer.save_every=2 train.mini_batch_size=2 trainer.samples=2"
least="train.weights=bf16 train.master=remainder train.moments=bf16"

train plain $common
ok $? "$(tail -1 "$work/plain.log")"
train parked $common train.park_states=true trainer.save_buffer=5000
ok $? "$(tail -1 "$work/parked.log")"
same_run plain parked 4 "parked states"

train least $common $least train.use_kl_loss=true trainer.save_buffer=0
ok $? "$(tail -1 "$work/least.log")"
all_exact least
grep -q '"actor/kl_loss":0,' <(head -1 "$work/least/metrics.jsonl") || head -1 "$work/least/metrics.jsonl" | grep -q '"actor/updates":2'
ok $? "before the first update the reference is the policy"
train moved $common $least train.use_kl_loss=true trainer.save_buffer=5000 train.park_states=true train.offload_fraction=0.3 trainer.steps=2
train moved $common $least train.use_kl_loss=true trainer.save_buffer=5000 train.park_states=true train.offload_fraction=1
ok $? "$(tail -1 "$work/moved.log")"
same_run least moved 4 "parked, on the host, gone on from a checkpoint"
"$hone" export "$work/least" "$work/short" --dtype bf16 >/dev/null && "$hone" score "$work/short" --in <(echo '{"tokens":[5,6,7,8],"prompt":1}') >"$work/score" 2>&1
ok $? "the export in bf16: $(tail -1 "$work/score")"

train other $common trainer.steps=2
train other $common $least # float32 goes on as bf16, and says so
expect "another format" "$work/other.log" 'weights was "f32", is "bf16", master was "f32", is "remainder", moments was "f32", is "bf16"'
train wrong $common train.master=remainder
refused wrong $? 'train.master: remainder: it is what rounding takes from bf16 weights'
the_end
