#!/bin/bash
# scorers.sh - outside scorers as a user meets them: nothing of them outlives a kill, a file that is edited does not judge
# half of a run, numbers reach them as they stand in the data, and what is read in samples.jsonl is what they judged.
#   bash tests/cmd/scorers.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 16
own="reward.library=null reward.workers=1" # beside train's usual options

# ---- ReMax: the greedy answer is punished for its length as the others are
train remax $own trainer.steps=1 trainer.samples=16 algo.advantage=remax algo.overlong.enable=true algo.overlong.buffer=12 reward.command='while read -r l; do echo 1; done'
grep -q '"finish":"length","tokens":12' "$work/remax/samples.jsonl" && grep -oE '"advantage":[^,]*' "$work/remax/samples.jsonl" | grep -qvE ':-'
ok $? "advantages $(grep -oE '"advantage":[^,]*' "$work/remax/samples.jsonl" | tr '\n' ' ') $(tail -1 "$work/remax.log")"

# ---- an adaptive coefficient of more answers than horizons is one that a checkpoint can hold
adaptive="$own algo.kl_in_reward=true algo.kl_control=adaptive algo.kl_horizon=1 trainer.save_every=1"
train kl $adaptive trainer.steps=1 reward.command='while read -r l; do echo 1; done'
train kl $adaptive trainer.steps=2 reward.command='while read -r l; do echo 1; done'
ok $? "going on with an adaptive coefficient: $(tail -1 "$work/kl.log")"
grep -q '"kl_coef":0.00064[,}]' "$work/kl/checkpoints/step-000002/state.json"
ok $? "the coefficient: $(grep -o '"kl_coef":[^,}]*' "$work"/kl/checkpoints/*/state.json)"
the_end
