#!/bin/bash
# wrong.sh HONE - wrong inputs as a newcomer gives them: each gets one line that says what is wrong, the right exit
# code, and no crash.
hone=$(readlink -f "$1")
data=$PWD/tests/data
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
passed=0 failed=0

# wrong CODE FRAGMENT ARGUMENTS...: exit code, what standard error must hold; it must be one line (beside the one on the
# device).
wrong() {
    local code=$1 fragment=$2 rc
    shift 2
    timeout 60 "$hone" "$@" >out 2>err </dev/null
    rc=$?
    sed -i '/^hone: computing on /d' err
    if [ $rc = "$code" ] && grep -qF -- "$fragment" err && [ "$(wc -l <err)" = 1 ]; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: hone $*: exit code $rc, $code wanted; '$fragment' wanted in:"
    head -4 err
}

"$hone" random "$root/recipes/quickstart/model" model || exit 1
for a in 1 2 3 4 5 6 7 8; do echo "{\"question\": \"$a+1\", \"answer\": \"#### $((a + 1))\"}"; done >raw.jsonl
"$hone" data gsm8k --in raw.jsonl --out q.jsonl --instruction '{question}' >/dev/null 2>&1
cat >run.yaml <<'END'
model: {path: model}
data: {train_files: q.jsonl, train_batch_size: 4, max_prompt_length: 32, max_response_length: 16}
rollout: {n: 2}
train: {mini_batch_size: 4, micro_tokens: 256}
trainer: {steps: 1, run_dir: run}
END
: >empty
echo '{"tokens": [1, 2]}' >tokens.jsonl
echo '{"prompt": "1+1", "response": "2"}' >pairs.jsonl
: >empty.jsonl
printf 'a: [1\n' >bad.yaml
printf 'model: {path: model}\nmodel: {path: x}\n' >twice.yaml
echo '{"a": 1}' >no_columns.jsonl
echo '{"a": 1' >half.jsonl
mkdir no_model

wrong 2 "no verb 'trian'; the nearest is train" trian
wrong 2 "no verb 'xyzzy'; \`hone --help\` lists them" xyzzy
wrong 2 "no option --theads; the nearest is --threads" score --theads 2
wrong 2 "CONFIG.yaml is missing" train
wrong 2 "no option --foo" train run.yaml --foo
wrong 1 "cannot open" train nothing.yaml
wrong 1 "model.path: is not set" train empty
wrong 1 "bad.yaml:2" train bad.yaml
wrong 1 "model stands twice" train twice.yaml
wrong 1 "nearest is train.lr" train run.yaml train.lrr=1
wrong 1 "not key=value" train run.yaml foo
wrong 1 "trainer.steps: 'abc'" train run.yaml trainer.steps=abc
wrong 1 "is not a folder" train run.yaml model.path=nowhere
wrong 1 "data.train_files: is empty" train model.path=model data.max_prompt_length=32 data.max_response_length=16
wrong 1 "nothing.parquet does not exist" train run.yaml data.train_files=nothing.parquet
wrong 1 "there are no rows" train run.yaml data.train_files=empty.jsonl
wrong 1 "no data_source" train run.yaml data.train_files=no_columns.jsonl
wrong 1 "only 8 questions" train run.yaml data.train_batch_size=16
wrong 1 "gae needs a critic" train run.yaml algo.advantage=gae
wrong 1 "mpirun -n 2" train run.yaml grid.tp=2
wrong 1 "no scorer for data_source 'nope'" train run.yaml reward.scorer=nope
wrong 1 "has no tokenizer" train run.yaml model.path="$data/models/qwen3_moe"
wrong 1 "has no tokenizer" train run.yaml model.path="$data/models/qwen2_5_vl"
wrong 1 "cannot create" train run.yaml trainer.run_dir=/proc/run
wrong 1 "no response" sft model.path=model data.train_files=q.jsonl sft.batch_size=4 sft.max_length=64 trainer.run_dir=sft
wrong 1 "is not set" sft empty

for verb in inspect score generate chat verify; do
    wrong 1 "cannot open" $verb nowhere
    wrong 1 "no config.json" $verb no_model
done
wrong 1 "is there already" random "$root/recipes/quickstart/model" model
wrong 1 "has no tokenizer" chat "$data/models/llama"
wrong 1 "has no tokenizer" eval "$data/models/llama" q.jsonl
wrong 1 "has no tokenizer" tokenize no_model
wrong 1 "has no chat template" template no_model
for verb in generate score chat "eval model q.jsonl"; do
    set -- $verb
    [ $# = 1 ] && set -- $verb model
    for t in 1e9 1e-39 0.00009 -1 nan; do wrong 2 "--temperature" "$@" --temperature $t; done
    for l in 3 24 33 64; do wrong 2 "--leaves must" "$@" --leaves $l; done
done
wrong 2 "--threads must" convert model x --threads 257
wrong 2 "--threads must" random model x --threads 1024
wrong 2 "--threads must" template model --in q.jsonl --threads 257
for l in 3 33; do wrong 2 "--leaves must" verify model --leaves $l; wrong 1 "trainer.leaves" train run.yaml trainer.leaves=$l; done
for t in 1e9 1e-39 0.00009 0; do wrong 1 "rollout.temperature" train run.yaml rollout.temperature=$t; done
for t in 1e9 1e-39 0.00009; do wrong 1 "rollout.val.temperature" train run.yaml rollout.val.temperature=$t; done
wrong 2 "whole number" generate model --n x
wrong 1 "the largest part is the cache" generate model --in tokens.jsonl --kv-tokens 10000000000
wrong 1 "the largest part is scratch" score model --in tokens.jsonl --batch 1000000000
wrong 1 "the largest part is activations" train run.yaml train.micro_tokens=1000000000
wrong 1 "the largest part is kv" train run.yaml rollout.kv_tokens=1000000000000
wrong 1 "the largest part is activations" sft model.path=model data.train_files=pairs.jsonl sft.batch_size=1 sft.max_length=64 \
    train.micro_tokens=1000000000 trainer.run_dir=sft
# A model of 16 experts a token: more rows than 32 bits count, answers and pages too.
mkdir many && sed 's/"num_experts": 8/"num_experts": 16/; s/"num_experts_per_tok": 2/"num_experts_per_tok": 16/; s/"max_position_embeddings": 512/"max_position_embeddings": 2000000000/
    s/"hidden_size": 128/"hidden_size": 32/; s/"num_hidden_layers": 4/"num_hidden_layers": 1/' "$root/recipes/quickstart/model/config.json" >many/config.json
cp "$root"/recipes/quickstart/model/tok* many
"$hone" random many many16 >/dev/null
wrong 1 "micro_tokens: 1000000000 tokens are more than this model computes at once, 134217727" train run.yaml model.path=many16 train.micro_tokens=1000000000
wrong 1 "token_budget: 1000000000 tokens are more than" train run.yaml model.path=many16 rollout.token_budget=1000000000
wrong 1 "micro_tokens: 134217728 tokens are more than" sft model.path=many16 data.train_files=pairs.jsonl train.micro_tokens=134217728
wrong 1 "the largest part is scratch" score many16 --in tokens.jsonl --batch 1000000000
wrong 1 "at most 100000000 (--prompts, --answers)" plan many16 --cluster this --prompts 1000000000 --answers 65536
wrong 1 "this model computes at most 134217727 at once" plan many16 --cluster this --micro-tokens 1000000000
wrong 1 "this model computes at most 134217727 at once" plan many16 --cluster this --prompt-max 1000000000 --max 1000000000
# A tokenizer with ids that the model does not have.
mkdir few && sed 's/"vocab_size": 262/"vocab_size": 60/; s/_token_id": 259/_token_id": 59/' "$root/recipes/quickstart/model/config.json" >few/config.json
cp "$root"/recipes/quickstart/model/tok* few
"$hone" random few few60 >/dev/null
for v in "eval few60 q.jsonl --max-tokens 2" "train run.yaml model.path=few60" "train run.yaml model.path=few60 data.filter_overlong_prompts=true" \
    "sft model.path=few60 data.train_files=pairs.jsonl sft.batch_size=1 sft.max_length=64 trainer.run_dir=sft"; do
    wrong 1 "the tokenizer gives id 260, but the model has 60" $v
done
wrong 2 "an argument is missing" export run
wrong 2 "is neither show, stats" data foo
wrong 1 "half.jsonl line 1" data show half.jsonl
wrong 1 "no such file" data show nothing
wrong 1 "no row that was shown has a column nope" data show q.jsonl --columns prompt,nope
wrong 1 "no column question" data gsm8k --in q.jsonl --out x.jsonl
wrong 2 "must end in" data gsm8k --in raw.jsonl --out x.txt
wrong 1 "cannot open" grade --in nothing
wrong 1 "no scorer" grade --scorer nothing --in q.jsonl
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
