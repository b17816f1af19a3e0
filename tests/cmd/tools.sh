#!/bin/bash
# tools.sh - answers of several turns with the calculator: what tools say is masked, what was sampled is what is trained
# (E3), whatever the engine's room; runs that were stopped go on to the same bytes; budgets; what is refused.
#   bash tests/cmd/tools.sh build/hone
. tests/cmd/train_common.bash
"$hone" random "$repo/recipes/quickstart-tools/model/config.json" "$work/new" --seed 3 >/dev/null || { echo "no model"; exit 1; }
cp "$repo"/recipes/quickstart-tools/model/tokenizer*.json "$work/new/"
make_model # one whose template knows no calls
mv "$work/model" "$work/plain"
call='"content":"","tool_calls":[{"id":"call00000","type":"function","function":{"name":"calculator","arguments":{"expression":'
for ((i = 0; i < 64; i++)); do
    q=$((40 + i % 8))*$((50 + i / 8))
    echo '{"messages":[{"role":"user","content":"what is '$q'?"},{"role":"assistant",'$call'"'$q'"}}}]},{"role":"tool","content":"'$((q))'"},{"role":"assistant","content":"#### '$((q))'"}]}'
    echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"what is '$q'?"}],"reward_model":{"style":"rule","ground_truth":"'$((q))'"}}' >&3
done >"$work/taught.jsonl" 3>"$work/sums.jsonl"
cd "$work" || exit 1
"$hone" sft model.path=new data.train_files=taught.jsonl sft.messages_key=messages sft.batch_size=16 sft.max_length=64 train.micro_tokens=1024 \
    train.lr=3e-3 trainer.steps=36 trainer.save_every=0 trainer.threads=2 trainer.peak_tflops=0.1 trainer.run_dir=sft >sft.log 2>&1 \
    && "$hone" export sft model >/dev/null || { echo "not taught: $(tail -1 sft.log)"; exit 1; }
tools() { train "$1" 'rollout.tools=[calculator]' data.max_prompt_length=24 data.max_response_length=32 train.micro_tokens=512 trainer.exact_every=1 reward.library=null trainer.samples=16 "${@:2}"; }
value() { sed -n 's|.*"'"$2"'":\([^,}]*\).*|\1|p' "$1/metrics.jsonl"; }

tools run trainer.steps=4 trainer.save_every=2
ok $? "a run with tools: $(tail -1 run.log)"
expect "the format" run.log "tools: calls are written as hermes, answers of up to 8 turns"
value run tools/calls/mean | awk '{ n++; s += $1 } END { exit !(n == 4 && s / n > 0.3) }'
ok $? "tools are hardly called: $(value run tools/calls/mean | tr '\n' ' ')"
[ "$(value run exact/max_abs_logprob_diff | sort -u)" = 0 ]
ok $? "sampled and trained differ: $(value run exact/max_abs_logprob_diff | tr '\n' ' ')"
value run actor/grad_norm | awk '{ s += $1 } END { exit !(s > 0) }'
ok $? "nothing was learned from: the scores are $(value run critic/score/mean | tr '\n' ' ')"
paste <(value run exact/tokens) <(value run tools/sampled_tokens) <(value run rollout/tokens) \
    | awk '{ if ($1 != 16 * $2 || $1 != $3) bad = 1 } END { exit bad || NR != 4 }'
ok $? "compared, sampled and drawn tokens are not as many"
grep -q '"turns":\[{"role":"assistant","text":"<tool_call>[^|]*</tool_call><|end|>","mask":1,"tokens":[0-9]*},{"role":"tool","text":"<|tool|>[^"]*<|model|>","mask":0,"tokens":[0-9]*},{"role":"assistant"' run/samples.jsonl
ok $? "no answer has a call, its answer and another turn"
paste <(sed 's/.*"output":"\(\([^"\\]\|\\.\)*\)".*/\1/' run/samples.jsonl) <(sed 's/.*"text":"\(\([^"\\]\|\\.\)*\)","mask":1,[^{]*}\]}$/\1/; s/<|[a-z]*|>//g' run/samples.jsonl) \
    | awk -F'\t' '$1 != $2 { bad++ } END { exit bad > 0 }'
ok $? "the answer that is judged is not the last turn"

tools narrow trainer.steps=4 trainer.save_every=2 rollout.max_batch=8 rollout.kv_tokens=80 rollout.token_budget=9
for f in samples.jsonl checkpoints/step-000004/model/model.safetensors; do
    cmp -s run/$f narrow/$f
    ok $? "with little room: $f differs"
done
sum() { value "$1" "$2" | awk '{ s += $1 } END { print s }'; }
[ "$(sum run rollout/prefix_tokens)" -gt 0 ]
ok $? "a turn's pages are not found by the next one"
tools resumed trainer.steps=2 trainer.save_every=2
tools resumed trainer.steps=4 trainer.save_every=2
same_run run resumed 4 "stopped and gone on"
if command -v mpirun >/dev/null; then
    launch="mpirun --allow-run-as-root --oversubscribe -n 2" tools ranks trainer.steps=1
    [ "$(sed 's/"advantage":[^,]*,//' ranks/samples.jsonl)" = "$(grep '"step":1,' run/samples.jsonl | sed 's/"advantage":[^,]*,//')" ]
    ok $? "two ranks sample otherwise: $(tail -1 ranks.log)"
    [ "$(value ranks exact/max_abs_logprob_diff)" = 0 ]
    ok $? "on two ranks sampled and trained differ"
else skipped=$((skipped + 1)); fi

tools one trainer.steps=1 rollout.max_turns=1
[ "$(value one tools/given_tokens) $(value one num_turns/max)" = "0 1" ]
ok $? "one turn: $(value one tools/given_tokens) given, $(value one num_turns/max) turns"
tools short trainer.steps=1 data.max_response_length=10
[ "$(value short tools/given_tokens)" = 0 ] && grep -q '"finish":"length","tokens":8,' short/samples.jsonl
ok $? "what a tool says is put where it finds no room: $(tail -1 short.log)"
tools few trainer.steps=1 rollout.max_calls=1 rollout.max_turns=3
value few tools/calls/max | grep -qE '^[0-9]+$'
ok $? "few calls: $(tail -1 few.log)"

# ---- eval with tools: as good as the run's answers, which are as good as their calls; without them hardly
say() { sed -n 's/^ *mean@1 *\([0-9.]*\) .*/\1/p' "$1"; }
"$hone" eval model sums.jsonl --questions 16 --max-tokens 32 --tools calculator --out with.jsonl >with.txt 2>&1 \
    && "$hone" eval model sums.jsonl --questions 16 --max-tokens 32 >without.txt 2>&1
ok $? "eval: $(cat with.txt without.txt | tail -1)"
awk -v a="$(say with.txt)" -v b="$(say without.txt)" 'BEGIN { exit !(a > b && b == 0) }'
ok $? "eval with tools $(say with.txt), without $(say without.txt)"
"$hone" eval model sums.jsonl --tools calculator,calculator >twice.txt 2>&1
tail -1 twice.txt | grep -q "^hone eval: --tools: the tool 'calculator' is named twice"
ok $? "eval: $(tail -1 twice.txt)"

no() { # no PATTERN KEY=VALUE...
    tools refused trainer.steps=1 "${@:2}"
    refused refused $? "$1"
    rm -rf refused
}
no "there is no tool 'abacus'; built in is: calculator" 'rollout.tools=[abacus]'
no "a turn with rollout.tools ends with its end token alone" 'rollout.stop=["x"]'
no "cannot be cut to a sum" rollout.step_tokens=100
no "remax" algo.advantage=remax rollout.n=1
no "rollout.tool_format is auto or one of deepseek" rollout.tool_format=nope
no "the chat template writes no calls that are known" model.path=plain
echo "{% for m in messages if m['role'] != 'tool' %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}" >lost.jinja
no "the template leaves out what the tool says" model.chat_template=lost.jinja rollout.tool_format=hermes
the_end
