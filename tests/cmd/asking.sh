#!/bin/bash
# asking.sh - small things that a new user meets: a question in the command line, chat as the model's folder likes it,
# a step's line in a file.
#   bash tests/cmd/asking.sh build/hone
. tests/cmd/train_common.bash
cd "$work" || exit 1
make_model
make_sums 16

# ---- generate --prompt: the line that a file would hold
echo '{"messages":[{"role":"user","content":"7+8 \"x\""}]}' >one.jsonl
"$hone" generate model --in one.jsonl --n 2 --max-tokens 8 --seed 3 >file.out 2>err
"$hone" generate model --prompt '7+8 "x"' --n 2 --max-tokens 8 --seed 3 >prompt.out 2>err
[ $? = 0 ] && [ -s prompt.out ] && cmp -s file.out prompt.out; ok $? "--prompt: $(cat err; diff file.out prompt.out | head -3)"
mkdir plain && cp model/* plain && sed -i 's/"chat_template"/"no_template"/' plain/tokenizer_config.json && rm -f plain/chat_template*
echo '{"text":"7+8"}' | "$hone" generate plain --max-tokens 8 >file.out 2>err
"$hone" generate plain --prompt 7+8 --max-tokens 8 >prompt.out 2>err
[ $? = 0 ] && cmp -s file.out prompt.out; ok $? "--prompt without a template: $(cat err)"
"$hone" generate model --prompt x --in one.jsonl >out 2>err
[ $? = 2 ]; ok $? "exit code"; expect "two sources" err "one of them"

# ---- chat: what the folder says, unless the command line does
talk() { echo '1+2' | "$hone" chat "$1" --max-tokens 12 --ignore-eos "${@:2}" 2>err; }
cp -r model likes
echo '{"do_sample":true,"temperature":0.5,"top_p":0.8,"top_k":5,"eos_token_id":1}' >likes/generation_config.json
[ "$(talk likes)" = "$(talk likes --temperature 0.5 --top-p 0.8 --top-k 5)" ]; ok $? "chat is not as the folder says: $(cat err)"
[ "$(talk likes --temperature 3 --top-p 1 --top-k 0)" = "$(talk model --temperature 3)" ]; ok $? "the command line does not outrank it"
[ "$(talk model)" = "$(talk model --temperature 1)" ]; ok $? "a folder that says nothing"
echo '{"do_sample":false}' >likes/generation_config.json
[ "$(talk likes)" = "$(talk likes --greedy)" ]; ok $? "do_sample: false"
echo '{"temperature":-2}' >likes/generation_config.json
talk likes >out
[ $? = 1 ]; ok $? "exit code"; expect "a temperature below 0" err "generation_config.json: temperature, top_p, min_p or top_k is outside"

# ---- a step's line
train run trainer.steps=2 trainer.device=cpu
ok $? "train: $(tail -1 run.log)"
expect "a step" run.log '^step 1/2  score [0-9.]+.*  silent [0-9]+%'
[ "$(grep '^step' run.log | awk 'length > 140' | wc -l)" = 0 ]; ok $? "a line is longer than 140"
grep '^step' run.log | grep -q 'exact diff 0' && grep '^step' run.log | grep -qE '  [0-9.]+ s|  s [0-9.]+'; ok $? "what stood there is gone: $(grep '^step' run.log)"
the_end
