#!/bin/bash
# gsm8k.sh - GRPO on GSM8K as published, end to end: raw lines -> `hone data gsm8k` -> Parquet -> `hone train` with a
# random model (it learns no mathematics; everything else is real).  The data is taken from DIR/../data/gsm8k.
#   bash tests/all/gsm8k.sh build/hone [DIR]
. tests/cmd/train_common.bash
raw=${2:+$(realpath "$2")/../data/gsm8k/train.jsonl}
if [ ! -f "$raw" ]; then echo "GSM8K's train.jsonl is not here: --extra DIR, and it at DIR/../data/gsm8k"; exit 77; fi
make_model
"$hone" data gsm8k --in "$raw" --out "$work/train.parquet" >"$work/data.log" 2>&1
ok $? "hone data gsm8k: $(tail -1 "$work/data.log")"
"$hone" data stats "$work/train.parquet" >"$work/stats" 2>&1 && grep -q 7473 "$work/stats"
ok $? "hone data stats does not count 7473 questions: $(head -2 "$work/stats")"
"$hone" train model.path="$work/model" "data.train_files=[$work/train.parquet]" data.train_batch_size=8 rollout.n=4 data.max_prompt_length=448 \
    data.filter_overlong_prompts=true data.max_response_length=48 train.micro_tokens=2048 trainer.steps=4 trainer.run_dir="$work/gsm8k" \
    reward.library="$(dirname "$hone")/scorers/low_bytes.so" >"$work/gsm8k.log" 2>&1
ok $? "hone train with the test's scorer: $(tail -1 "$work/gsm8k.log")"
all_exact gsm8k
ok $? "exact/max_abs_logprob_diff is not 0 on every step"
[ "$(grep -c '"actor/grad_norm":0,' "$work/gsm8k/metrics.jsonl")" = 0 ]
ok $? "a step had no gradient"
"$hone" train model.path="$work/model" "data.train_files=[$work/train.parquet]" data.train_batch_size=8 rollout.n=2 data.max_prompt_length=448 \
    data.filter_overlong_prompts=true data.max_response_length=32 train.micro_tokens=2048 trainer.steps=2 trainer.run_dir="$work/scored" >"$work/scored.log" 2>&1
ok $? "hone train with GSM8K's own scorer: $(tail -1 "$work/scored.log")"
"$hone" export "$work/gsm8k" "$work/exported" >/dev/null 2>&1 && "$hone" inspect "$work/exported" >/dev/null
ok $? "the exported model"
the_end
