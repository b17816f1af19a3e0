#!/bin/bash
# scorers.sh - outside scorers as a user meets them: nothing of them outlives a kill, a file that is edited does not judge
# half of a run, numbers reach them as they stand in the data, and what is read in samples.jsonl is what they judged.
#   bash tests/cmd/scorers.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 16
own="reward.library=null reward.workers=1" # beside train's usual options

# ---- acc is a share as well as a yes or no: in metrics, in pass@k (1 is right), and for dynamic sampling
shares='while read -r l; do i=$(((i + 1) % 4)); echo "{\"score\": 1, \"acc\": 0.$((i * 25))}"; done'
train shares $own trainer.steps=1 algo.filter_groups.enable=true algo.filter_groups.metric=acc "reward.command=$shares"
ok $? "groups that differ in their shares: $(tail -1 "$work/shares.log")"
grep -q '"reward/acc":0.375,' "$work/shares/metrics.jsonl"
ok $? "the mean of 0, 0.25, 0.5, 0.75: $(grep -o '"reward/acc":[^,]*' "$work/shares/metrics.jsonl")"
"$hone" eval "$work/model" "$work/sums.jsonl" --max-tokens 4 --threads 1 --n 4 --workers 1 --command "$shares" --json >"$work/out" 2>/dev/null
grep -qE '"acc":\{"value":0.3750*,' "$work/out" && grep -qE '"pass@4":\{"value":0.0*,' "$work/out"
ok $? "shares in eval: $(cat "$work/out")"

# ---- numbers reach a scorer, and a copy, in their own digits
numbers='{"whole":12345678901234567890123,"real":1.10,"far":1e999,"list":[-9223372036854775809,1E5,0.5,7]}'
echo '{"data_source":"x","prompt":"p","reward_model":{"ground_truth":12345678901234567890123},"extra_info":'$numbers'}' >"$work/numbers.jsonl"
echo '{"data_source":"x","solution_str":"a","ground_truth":1.10,"extra_info":'$numbers'}' >"$work/judge.jsonl"
"$hone" grade --command "tee $work/asked | while read -r l; do echo 1; done" --in "$work/judge.jsonl" >/dev/null
grep -qF '"ground_truth":1.10,"extra_info":'"$numbers}" "$work/asked"
ok $? "numbers on their way through grade: $(cat "$work/asked")"
train numbers $own trainer.steps=1 "data.train_files=[$work/numbers.jsonl]" data.train_batch_size=1 "reward.command=tee '$work/asked' | while read -r l; do echo 1; done"
grep -qF '"ground_truth":12345678901234567890123,"extra_info":'"$numbers}" "$work/asked"
ok $? "numbers on their way through train: $(head -1 "$work/asked") $(tail -1 "$work/numbers.log")"
"$hone" data copy --in "$work/numbers.jsonl" --out "$work/copy.jsonl" >/dev/null && cmp -s "$work/numbers.jsonl" "$work/copy.jsonl"
ok $? "numbers copied: $(cat "$work/copy.jsonl")"
"$hone" data copy --in "$work/numbers.jsonl" --out "$work/copy.parquet" 2>"$work/err"
[ $? = 1 ] && grep -qE 'column (ground_truth|whole|element|far) is .*which no number of a Parquet file holds: write it as text' "$work/err"
ok $? "a number that Parquet cannot hold: $(cat "$work/err")"

# ---- what samples.jsonl shows is what was judged
train stop $own trainer.steps=1 trainer.samples=16 'rollout.stop=["1","e","a"]' "reward.command=tee '$work/asked' | while read -r l; do echo 1; done"
texts() { grep -oE "\"$1\":\"([^\"\\\\]|\\\\.)*\"" "$2" | sed "s/^\"$1\"://" | sort; }
texts solution_str "$work/asked" >"$work/judged"
texts output "$work/stop/samples.jsonl" >"$work/shown"
[ "$(lines "$work/judged")" = 16 ] && cmp -s "$work/judged" "$work/shown" && grep -q '"finish":"stop"' "$work/stop/samples.jsonl"
ok $? "samples beside what was judged: $(diff "$work/judged" "$work/shown" | head -3) $(tail -1 "$work/stop.log")"

# ---- scores that one reward cannot tell apart are told of, once; what sums leave is none
train round $own trainer.steps=2 reward.command='while read -r l; do i=$((1 - i)); echo 10000000$i; done'
[ "$(grep -c 'step 1: scores 10000000[01] and 10000000[01] of answers to one question are the same reward' "$work/round/log.txt")" = 1 ]
ok $? "scores of one reward: $(cat "$work/round/log.txt")"
train sums $own trainer.steps=1 reward.command='while read -r l; do i=$((1 - i)); [ $i = 1 ] && echo 0.3 || echo 0.30000000000000004; done'
! grep -q 'the same reward' "$work/sums/log.txt"
ok $? "the same score by another sum was told of"

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
