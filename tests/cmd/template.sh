#!/bin/bash
# template.sh - a chat template given as a file is told what the model's own would be told (the special tokens), and the
# model that comes out of the run has it, and the tokenizer that it was trained with.
#   bash tests/cmd/template.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 81
cp -r "$work/model" "$work/other"
own="{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}{{ eos_token }}{% if add_generation_prompt %}<|model|>{% endif %}"
printf '%s' "$own" >"$work/own.jinja"
printf '%s' "$own" >"$work/other/chat_template.jinja"
line='{"messages":[{"role":"user","content":"7+8"}],"add_generation_prompt":true}'
want=$(echo "$line" | "$hone" template "$work/other")

train file trainer.steps=1 model.chat_template="$work/own.jinja"
ok $? "a run with a template file: $(tail -1 "$work/file.log")"
train folder trainer.steps=1 model.path="$work/other"
ok $? "a run with that template in the folder: $(tail -1 "$work/folder.log")"
cmp -s "$work/file/samples.jsonl" "$work/folder/samples.jsonl"
ok $? "the same template, once as a file and once in the folder: the samples differ"
for run in file folder; do
    "$hone" export "$work/$run" "$work/$run.out" >/dev/null
    [ "$(echo "$line" | "$hone" template "$work/$run.out")" = "$want" ]
    ok $? "$run: the exported model's template says $(echo "$line" | "$hone" template "$work/$run.out"), wanted $want"
done
echo '{"prompt":[{"role":"user","content":"1+1"}],"response":"2"}' >"$work/pairs.jsonl"
"$hone" sft model.path="$work/model" data.train_files="[$work/pairs.jsonl]" model.chat_template="$work/own.jinja" sft.batch_size=1 sft.max_length=64 \
    trainer.steps=1 trainer.threads=1 trainer.run_dir="$work/sft" >"$work/sft.log" 2>&1
ok $? "sft with a template file: $(tail -1 "$work/sft.log")"
cmp -s "$work/own.jinja" "$work"/sft/checkpoints/step-*/model/chat_template.jinja
ok $? "sft: the checkpoint has not the template"

rm "$work/model/tokenizer_config.json" "$work/model/tokenizer.json"
train apart trainer.steps=1 model.tokenizer="$work/other"
ok $? "a run with a tokenizer from elsewhere: $(tail -1 "$work/apart.log")"
"$hone" export "$work/apart" "$work/apart.out" >/dev/null
cmp -s "$work/other/tokenizer.json" "$work/apart.out/tokenizer.json" && cmp -s "$work/own.jinja" "$work/apart.out/chat_template.jinja"
ok $? "a tokenizer from elsewhere is not exported"
the_end
