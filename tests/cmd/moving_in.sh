#!/bin/bash
# moving_in.sh HONE - what a newcomer does in the first hour, with an own scorer in Python: runs that fail say why, runs
# that go on are looked at and taken along.
. tests/cmd/train_common.bash
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
make_model
make_sums 16
cd "$work" || exit 1
cat >digits.py <<'END'
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return sum(c.isdigit() for c in solution_str) / max(len(solution_str), 1)
END
cat >run.yaml <<'END'
model: {path: model}
data: {train_files: sums.jsonl, train_batch_size: 4, max_prompt_length: 16, max_response_length: 8}
rollout: {n: 4}
train: {lr: 1e-3, micro_tokens: 128}
reward: {python: digits.py}
trainer: {steps: 2, save_every: 1, keep: 3, run_dir: run, threads: 1, peak_tflops: 0.1}
END
"$hone" train run.yaml >out 2>err
ok $? "a scorer in Python: $(cat err)"
[ "$(wc -l <out)" -lt 60 ]
ok $? "a short start: $(wc -l <out) lines"
expect "what was set is shown" out '^  python: digits.py +# run.yaml:5$'
! grep -q 'kl_horizon' out
ok $? "what was not set is not shown"
expect "all of it is in the run directory" run/config.yaml '^  kl_horizon: 10000\.0$'

# ---- a scorer that fails stops the run, and says why
cat >fails.py <<'END'
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return {"score": 1}[ground_truth]
END
"$hone" train run.yaml reward.python=fails.py trainer.run_dir=fails >out 2>err
[ $? = 1 ]; ok $? "a scorer that always fails: exit code"
expect "how many, and why" err "could not judge 16 of 16 answers, more than reward.max_failed_ratio allows; the first: fails.py:2: KeyError"
expect "the reason of each failure" fails/samples.jsonl '"failed":true,"reason":"fails.py:2: KeyError: '

! grep -qv '^{"step":1,' fails/samples.jsonl
ok $? "of which step the answers are that could not be judged: $(head -c 40 fails/samples.jsonl)"

# ---- a line of samples.jsonl begins alike whether its answer could be judged or not (docs/formats.md)
begins='^\{"step":[0-9]+,"row":[0-9]+,"sample":[0-9]+,"score":[^,]+,"advantage":(null|[-0-9.e]+),"finish":"[a-z]+","tokens":[0-9]+,"input":".*","output":".*","gts":"'
for f in run fails; do
    [ -s $f/samples.jsonl ] && ! grep -qvE "$begins" $f/samples.jsonl
    ok $? "a sample of $f begins otherwise: $(grep -vE "$begins" $f/samples.jsonl | head -1)"
done
! grep -q '"advantage":null' run/samples.jsonl && ! grep -q '"advantage":[^n]' fails/samples.jsonl
ok $? "an advantage where there is none, or none where there is one"
"$hone" train run.yaml reward.python=fails.py trainer.run_dir=fails2 reward.max_failed_ratio=1 >out 2>err
ok $? "a scorer that may fail: $(tail -1 err)"
echo 'import nothing_of_that_name' >import.py
"$hone" train run.yaml reward.python=import.py trainer.run_dir=import >out 2>err
[ $? = 1 ]; ok $? "a scorer that cannot be loaded: exit code"
expect "a scorer that cannot be loaded" err "import.py:1: ModuleNotFoundError: No module named 'nothing_of_that_name'"

# ---- verl's names for it, and for the template's arguments
"$hone" train run.yaml custom_reward_function.path=digits.py trainer.run_dir=verl --check >out 2>err
ok $? "custom_reward_function.path: $(cat err)"
cat >template.jinja <<'END'
{% for m in messages %}{{ m.content }}{% endfor %}{% if thinking is false %}{{ effort }}{% endif %}
END
"$hone" train run.yaml model.chat_template=template.jinja data.template_args='[thinking=false, effort=7]' trainer.run_dir=arguments trainer.steps=1 >out 2>err
expect "template arguments reach the prompt" arguments/samples.jsonl '"input":"[0-9]\+[0-9]7'
"$hone" train run.yaml model.chat_template=template.jinja data.apply_chat_template_kwargs.thinking=False +data.apply_chat_template_kwargs.effort=8 \
    trainer.run_dir=kwargs trainer.steps=1 >out 2>err
expect "verl's name for them" kwargs/samples.jsonl '"input":"[0-9]\+[0-9]8'

# ---- the right answer under another key
sed 's/"reward_model":{"style":"rule","ground_truth":\("[0-9]*"\)}/"answer":\1/' sums.jsonl >answers.jsonl
"$hone" train run.yaml data.train_files=answers.jsonl trainer.run_dir=bare trainer.steps=1 >out 2>err
expect "no right answers" out '16 of 16 questions have no right answer under data.answer_key \(reward_model.ground_truth\)'
"$hone" train run.yaml data.train_files=answers.jsonl data.answer_key=answer trainer.run_dir=keyed trainer.steps=1 >out 2>err
! grep -q 'no right answer' out; ok $? "right answers under another key"

sed 's/"prompt":.*"answer"/"question":"1+1","answer"/' answers.jsonl >own.jsonl
"$hone" eval model own.jsonl --python digits.py --max-tokens 8 >out 2>err
[ $? = 1 ]; ok $? "no prompt: exit code"
expect "which columns there are" err 'own.jsonl line 1: there is no prompt; there are .*question, answer.*: prompt_key chooses'
"$hone" eval model own.jsonl --python digits.py --max-tokens 8 --prompt-key question --answer-key answer --out judged.jsonl >out 2>err
ok $? "eval of own JSON lines: $(cat err)"
expect "with their answers" judged.jsonl '"gts":"[0-9]+"'
printf 'def mine(solution_str):\n    return 0.25\n' >named.py
"$hone" eval model own.jsonl --python named.py --max-tokens 8 --prompt-key question >out 2>err
expect "a function of another name" err 'named.py: LookupError: there is no function compute_score; there are mine \(reward.python_function, --function\)'
"$hone" eval model own.jsonl --python named.py --function mine --max-tokens 8 --prompt-key question >out 2>err
expect "eval --function" out 'mean@1 +0.2500'
"$hone" data copy --in own.jsonl --out own.parquet >out 2>err
"$hone" eval model own.parquet --python digits.py --max-tokens 8 >out 2>err
expect "which columns a Parquet file has" err 'there is no prompt; there are .*question.*: prompt_key chooses'

# ---- mistakes are listed together, each with what to do
"$hone" train run.yaml train.use_kl=true actor_rollout_ref.model.mtp.enable=True rollout.n=x trainer.run_dir=wrong >out 2>err
[ $? = 1 ]; ok $? "three mistakes: exit code"
expect "their number" err '3 settings cannot be taken'
expect "the first" err 'nearest is train.use_kl_loss'
expect "the second" err "multi-token prediction is left out"
expect "the third" err "rollout.n: 'x' is not allowed"
[ ! -e wrong ]; ok $? "nothing was begun"
"$hone" train run.yaml rollout.grid.tp=2 grid.gpus_per_node=8 train.mini_batch_size=3 data.max_response_length=9999 reward.python=nowhere.py trainer.run_dir=wrong >out 2>err
[ $? = 1 ]; ok $? "five mistakes that contradict others: exit code"
expect "their number" err '5 settings cannot be had'
for what in 'rollout.grid.tp: a replica of tp 2' 'grid.gpus_per_node: 1 machines x 8' 'train.mini_batch_size' 'data.max_response_length: 9999' 'reward.python: nowhere.py does not exist'; do
    expect "$what" err "^  command line: $what"
done

# ---- taking it along
"$hone" export run out1 --step 1 >out 2>err && "$hone" export run out2 >>out 2>err
ok $? "export --step: $(cat err)"
expect "which step" out '^out1: the model after 1 steps of run$'
! cmp -s out1/model.safetensors out2/model.safetensors; ok $? "step 1 is not step 2"
"$hone" export run out3 --step 7 >out 2>err
[ $? = 1 ]; ok $? "a step that is not there: exit code"
expect "the steps that are there" err 'no checkpoint of step 7; there are 1, 2'
"$hone" show run --csv >out 2>err
expect "metrics as CSV" out '^step,.*critic/score/mean'
[ "$(wc -l <out)" = 3 ]; ok $? "a header and two steps"
"$hone" help train >out 2>err
expect "help of a verb" out '^usage: hone train '

for v in $("$hone" --help | sed -n 's/^  \([a-z-]*\) .*/\1/p'); do "$hone" "$v" --help; done | awk 'length > 80' >out
[ ! -s out ]; ok $? "help wider than 80 columns: $(head -3 out)"
COLUMNS=110 "$hone" train --help | awk 'length > 80 && length <= 110 { n++ } length > 110 { exit 1 } END { exit !n }'
ok $? "help at 110 columns"
COLUMNS=60 "$hone" page --help | awk 'length > 60 { exit 1 }'
ok $? "help at 60 columns"
"$hone" --help >out
expect "verbs in groups" out '^Training$'
expect "an example" <("$hone" pull --help) '^example: hone pull '
! grep -q $'\033' out; ok $? "colour in a file"

# ---- what verl saved: the huggingface folder of a checkpoint
mkdir -p ckpt/global_step_40/actor && cp -r model ckpt/global_step_40/actor/huggingface && echo 40 >ckpt/latest_checkpointed_iteration.txt
for path in ckpt ckpt/global_step_40 ckpt/global_step_40/actor ckpt/global_step_40/actor/huggingface; do
    "$hone" train run.yaml model.path=$path trainer.run_dir=hf --check >out 2>err && "$hone" inspect $path >/dev/null 2>>err
    ok $? "model.path=$path: $(cat err)"
done
rm ckpt/global_step_40/actor/huggingface/*.safetensors
"$hone" train run.yaml model.path=ckpt trainer.run_dir=hf --check >out 2>err
[ $? = 1 ]; ok $? "a folder without weights: exit code"
expect "what to do about it" err 'python -m verl.model_merger merge'

# ---- a config with a token outside of the vocabulary
sed 's/"vocab_size"/"bos_token_id": 99999999, "vocab_size"/' model/config.json >config.json && cp config.json model/config.json
"$hone" inspect model >out 2>err
ok $? "bos_token_id outside of the vocabulary: $(cat err)"
the_end
