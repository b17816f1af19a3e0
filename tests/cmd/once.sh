#!/bin/bash
# once.sh - what a run reads once, at its start: the clock that a chat template prints, the scorer and the model's folder.
# A run that goes on another day, in another time zone or without those has the bytes of the run that was not stopped.
#   bash tests/cmd/once.sh build/hone
. tests/cmd/train_common.bash
export ASAN_OPTIONS=detect_leaks=0 # what MPI keeps to its end is not a leak of ours
make_model
make_sums 12
cd "$work" || exit 1
for a in 1 2 3 4; do echo '{"prompt":"'$a+1'","response":"'$((a + 1))'"}'; done >pairs.jsonl
sft() { "$hone" sft model.path="$work/model" data.train_files=pairs.jsonl sft.batch_size=2 sft.max_length=48 train.micro_tokens=96 trainer.threads=1 trainer.peak_tflops=0.1 trainer.run_dir="$work/$1" "${@:2}" >"$work/$1.log" 2>&1; }
# Two clocks that never show the same day: at noon, and 13 hours behind.  What a time zone is in a test is a day, or a
# clock that is wrong, in a run.
hour=$((10#$(date -u +%H) - 12))
noon=NOON$hour later=LATE$((hour + 13))
printf '%s' "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}{{ strftime_now('%d%H') }}{% if add_generation_prompt %}<|model|>{% endif %}" >clock.jinja
now_of() { sed -nE 's/^ +template_args: \["now=([^"]*)"\].*/\1/p' "$1/config.yaml"; }
timed="model.chat_template=clock.jinja trainer.val_before_train=false"

# ---- the clock of a run
(export TZ=$noon; train begun $timed trainer.steps=2)
now=$(now_of begun)
[[ $now =~ ^20[0-9]{2}-[01][0-9]-[0-3][0-9]T12:[0-5][0-9]:[0-5][0-9]$ ]]
ok $? "config.yaml does not keep the time: $(grep template_args begun/config.yaml)"
[ "$(grep -c "the chat template prints the time .*$now" begun.log)" = 1 ]
ok $? "one line says that the template prints the time: $(cat begun.log)"
(export TZ=$later; train begun $timed trainer.steps=4)
ok $? "gone on with another day: $(tail -1 begun.log)"
expect "whose time it is" begun.log "the chat template prints the time .*$now.* as when this run began"
! grep 'changed since' begun/log.txt | grep -q template_args
ok $? "nothing was changed but the steps: $(grep 'changed since' begun/log.txt)"
train whole $timed trainer.steps=4 data.template_args="[now=$now]"
same_run begun whole 4 "gone on with another day"
! grep -q 'prints the time' whole.log
ok $? "a time that was given is told"
(export TZ=$later; "$hone" train begun/config.yaml trainer.run_dir="$work/again" >again.log 2>&1)
same_run begun again 4 "the same config.yaml on another day"
(export TZ=$later; train begun $timed trainer.steps=5 data.template_args='[now=2020-02-03T04:05:06]')
expect "another time was given" begun/samples.jsonl '"input":"[^"]*0304'
expect "and it is told" begun/log.txt 'data.template_args .*: changed since the last start'
train plain trainer.steps=1
! grep -q 'prints the time' plain.log && ! grep -q now= plain/config.yaml
ok $? "a template that prints no time: $(grep -h 'the time\|now=' plain.log plain/config.yaml)"
(export TZ=$noon; sft taught $timed trainer.steps=1)
now=$(now_of taught)
(export TZ=$later; sft taught $timed trainer.steps=3)
ok $? "sft: gone on with another day: $(tail -1 taught.log)"
sft taught_whole $timed trainer.steps=3 data.template_args="[now=$now]"
cmp -s {taught,taught_whole}/checkpoints/step-000003/model/model.safetensors
ok $? "sft: gone on with another day: other weights"

# ---- ranks whose clocks differ
if command -v mpirun >/dev/null && [ -f "$(dirname "$hone")/libhone_mpi.so" ]; then
    two() { local verb=$1; shift; mpirun --allow-run-as-root --oversubscribe -n 1 env TZ=$noon "$hone" "$verb" "$@" : -n 1 env TZ=$later "$hone" "$verb" "$@"; }
    two_train() { # two_train RUN KEY=VALUE...
        two train model.path=model data.train_files=sums.jsonl data.train_batch_size=4 rollout.n=4 data.max_prompt_length=16 data.max_response_length=12 train.micro_tokens=128 \
            trainer.threads=1 trainer.peak_tflops=0.1 trainer.device=cpu reward.library="$(dirname "$hone")/scorers/low_bytes.so" grid.tp=2 $timed trainer.run_dir="$1" "${@:2}" >"$1.log" 2>&1
    }
    two_train ranks trainer.steps=2
    ok $? "two clocks: $(tail -2 ranks.log)"
    all_exact ranks
    ok $? "two clocks: the sampler's log-probs are not the trainer's: $(grep -h 'exact diff' ranks.log)"
    day=$(now_of ranks | cut -c9-10)12
    [ "$(grep -c "\"input\":\"[^\"]*$day" ranks/samples.jsonl)" = "$(lines ranks/samples.jsonl)" ]
    ok $? "two clocks: not the first rank's: $(head -1 ranks/samples.jsonl)"
    cp -r ranks without
    two_train ranks trainer.steps=3
    mv model away
    two_train without trainer.steps=3
    same_run without ranks 3 "two ranks go on without the model's folder"
    [ "$(grep -c 'not there any more' without.log)" = 1 ]
    ok $? "two ranks: told once: $(cat without.log)"
    mv away model
    cp -r model timed
    cp clock.jinja timed/chat_template.jinja
    two eval timed sums.jsonl --max-tokens 6 --threads 1 --workers 1 --library "$(dirname "$hone")/scorers/low_bytes.so" --grid tp=2 --out two.jsonl >out 2>err
    ok $? "eval, two clocks: $(cat err)"
    now=$(sed -nE 's/.*the chat template prints the time .*: ([0-9T:-]+).*/\1/p' err)
    "$hone" eval timed sums.jsonl --max-tokens 6 --threads 1 --workers 1 --library "$(dirname "$hone")/scorers/low_bytes.so" --out one.jsonl --template-args '{"now":"'"$now"'"}' >out 2>err
    ok $? "eval, told the time: $(cat err)"
    cmp -s one.jsonl two.jsonl
    ok $? "eval, two clocks: other answers than one clock's"
    echo '{"messages":[{"role":"user","content":"7+8"}]}' >line.jsonl
    two generate timed --in line.jsonl --max-tokens 6 --threads 1 --grid tp=2 --out two.jsonl >out 2>err
    ok $? "generate, two clocks: $(cat err)"
    TZ=$noon "$hone" generate timed --in line.jsonl --max-tokens 6 --threads 1 --out one.jsonl >out 2>err
    cmp -s one.jsonl two.jsonl
    ok $? "generate, two clocks: other answers than the first one's"
else skipped=$((skipped + 1)); fi

# ---- the scorer: kept, and gone when the run goes on
judged() { # judged RUN KEY=VALUE...
    "$hone" train model.path=model data.train_files=sums.jsonl data.train_batch_size=4 rollout.n=4 data.max_prompt_length=16 data.max_response_length=8 train.micro_tokens=128 \
        trainer.threads=1 trainer.peak_tflops=0.1 trainer.device=cpu reward.python=judge.py trainer.run_dir="$1" "${@:2}" >"$1.log" 2>&1
}
printf 'def compute_score(solution_str, **rest):\n    return len(solution_str.encode()) %% 3\n' >judge.py
cp judge.py kept.py
judged scored trainer.steps=4
judged unscored trainer.steps=2
cmp -s unscored/scorer.py kept.py
ok $? "the run does not keep its scorer: $(ls unscored)"
rm judge.py
judged nobody trainer.steps=1
[ $? = 1 ] && grep -q 'reward.python: judge.py does not exist' nobody.log
ok $? "a run that begins without its scorer: $(tail -1 nobody.log)"
judged unscored trainer.steps=4
ok $? "gone on without the scorer's file: $(tail -1 unscored.log)"
expect "gone on without the scorer's file" unscored.log 'not there any more: reward.python \(judge.py\); the run goes on with what is in unscored$'
same_run unscored scored 4 "gone on without the scorer's file"
! grep -q 'was saved' unscored.log && cmp -s unscored/scorer.py kept.py
ok $? "the scorer that was kept is another: $(grep 'was saved' unscored.log)"
echo '# edited' | cat kept.py - >judge.py
judged unscored trainer.steps=5
expect "gone on with an edited scorer" unscored.log '^the scorer is another than when .*step-000004 was saved'
cmp -s unscored/scorer.py judge.py
ok $? "the scorer that judges now is not kept"

# ---- the model's folder: changed, then gone, while a run goes on and before it goes on again
cp -r model kept
start held trainer.steps=100000 &
child=$!
wait_lines held 1
mv model away
mkdir model
cp away/* model
echo '{"chat_template": "another"}' >model/tokenizer_config.json
echo '{"temperature": 0.25}' >model/generation_config.json
sleep 0.1
rm -r model
kill -TERM $child
wait $child
ok $? "the model's folder went while the run was under way: $(tail -1 held.log)"
child=""
step=$(sed -nE 's/.*after step ([0-9]+) of 100000; saved.*/\1/p' held.log)
step=${step:-0}
saved=held/checkpoints/$(printf step-%06d "$step")/model
cmp -s "$saved/tokenizer.json" kept/tokenizer.json && cmp -s "$saved/tokenizer_config.json" kept/tokenizer_config.json && [ ! -e "$saved/generation_config.json" ]
ok $? "the checkpoint has not the tokenizer of the start: $(ls "$saved")"
"$hone" train model.path=model data.train_files=sums.jsonl data.train_batch_size=4 rollout.n=4 data.max_prompt_length=16 data.max_response_length=12 reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.run_dir=held --check >out 2>err
ok $? "--check without the folder: $(cat err)"
train held trainer.steps=$((step + 2))
ok $? "gone on with, without the folder: $(tail -1 held.log)"
for f in held.log held/log.txt; do expect "and why it can" $f "not there any more: model.path \\(.*/model\\); the run goes on with what is in .*$saved"; done
! grep -q 'changed since the last start' <(grep -v 'trainer.steps' held/log.txt)
ok $? "without the folder: $(grep 'changed since' held/log.txt)"
expect "config.yaml keeps its name" held/config.yaml "^  path: $work/model "
mv away model
train unheld trainer.steps=$((step + 2))
same_run held unheld $((step + 2)) "gone on with, without the folder"
cmp -s {held,unheld}/checkpoints/$(printf step-%06d $((step + 2)))/model/config.json
ok $? "gone on with, without the folder: config.json differs"
train nothing trainer.steps=1 model.path="$work/nowhere"
refused nothing $? "model.path: $work/nowhere is not a folder"
train learnt trainer.steps=1 train.use_kl_loss=true
sft pupil trainer.steps=1 model.tokenizer=kept model.chat_template=clock.jinja data.template_args='[now=2020-02-03]'
sft pupils trainer.steps=3 model.tokenizer=kept model.chat_template=clock.jinja data.template_args='[now=2020-02-03]'
mv model away
train learnt trainer.steps=2 train.use_kl_loss=true
refused learnt $? "model.path: $work/model is not there any more, and the reference model .*train.use_kl_loss"
mkdir model # an empty place where something was mounted
mv kept kept_away
mv clock.jinja clock_away
sft pupil trainer.steps=3 model.tokenizer=kept model.chat_template=clock.jinja data.template_args='[now=2020-02-03]'
ok $? "sft: gone on with, without folder, tokenizer and template: $(tail -1 pupil.log)"
expect "all three are named" pupil.log "not there any more: model.path .*, model.tokenizer \\(kept\\), model.chat_template \\(clock.jinja\\)"
for f in model/model.safetensors model/chat_template.jinja model/tokenizer.json optimizer.safetensors; do
    cmp -s {pupil,pupils}/checkpoints/step-000003/$f
    ok $? "sft: gone on with, without the folder: $f differs"
done
sft pupil trainer.steps=4 trainer.resume=never
[ $? = 1 ] && grep -q 'model.path: .* holds no config.json' pupil.log
ok $? "another run, without the folder: $(tail -1 pupil.log)"
echo spoilt >>pupil/checkpoints/step-000003/model/model.safetensors
rm -r pupil/checkpoints/step-00000[12] 2>/dev/null
sft pupil trainer.steps=4 model.tokenizer=kept model.chat_template=clock.jinja data.template_args='[now=2020-02-03]'
[ $? = 1 ] && tail -1 pupil.log | grep -q 'all 1 checkpoints are damaged'
ok $? "neither the folder nor a whole checkpoint: $(tail -1 pupil.log)"
the_end
