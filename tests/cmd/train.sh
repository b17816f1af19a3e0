#!/bin/bash
# train.sh - `hone train` as a user meets it: killed and resumed, told to stop, twice in one folder, and every method
# one step.
#   bash tests/cmd/train.sh build/hone [quick|normal|all]
. tests/cmd/train_common.bash
mode=${2:-quick}
make_model
make_sums 81

# ---- honest exactness: how many tokens were compared; all of them at step 1 and every trainer.exact_every steps, none is no difference
tokens() { grep -o '"step":'"$2"',.*' "$work/$1/metrics.jsonl" | grep -oE '"exact/tokens":[0-9]+' | cut -d: -f2; }
sampled() { grep -o '"step":'"$2"',.*' "$work/$1/metrics.jsonl" | grep -oE '"rollout/tokens":[0-9]+' | cut -d: -f2; }
for how in "train.mini_batch_size=1" "algo.tis=token train.shuffle=true train.mini_batch_size=2" "train.loss=kl_cov train.epochs=2"; do
    rm -rf "${work:?}/compared"
    train compared trainer.steps=6 trainer.exact_every=3 algo.advantage=grpo_passk $how
    all_exact compared
    ok $? "$how: not exact"
    for s in 1 2 3 4 5 6; do
        case $s in 1 | 3 | 6) [ "$(tokens compared $s)" = "$(sampled compared $s)" ] ;; *) [ "$(tokens compared $s)" -gt 0 ] ;; esac
        ok $? "$how: step $s compared $(tokens compared $s) of $(sampled compared $s) tokens"
    done
    [ "$how" != train.mini_batch_size=1 ] || [ "$(tokens compared 2)" -lt "$(sampled compared 2)" ]
    ok $? "$how: step 2 compared all $(sampled compared 2) tokens without need"
    grep -qE '^sampler against trainer: largest difference of a log-prob 0, over [0-9]+ tokens of [0-9]+ in 6 of 6 steps$' "$work/compared.log"
    ok $? "$how: $(grep 'sampler against' "$work/compared.log")"
done
grep -qE '^masters: ([0-9]+) of \1 tensors have changed$' "$work/compared.log"
ok $? "training does not reach every tensor: $(grep '^masters' "$work/compared.log")"
train silent-all trainer.steps=3 trainer.exact_every=3 reward.library=null reward.scorer=gsm8k
[ "$(tokens silent-all 1)" = "$(sampled silent-all 1)" ] && [ "$(tokens silent-all 2)" = 0 ] && [ "$(tokens silent-all 3)" = "$(sampled silent-all 3)" ]
ok $? "answers that all teach nothing: $(tokens silent-all 1) $(tokens silent-all 2) $(tokens silent-all 3) tokens compared"
grep -qE '^masters: [0-9]+ of [0-9]+ tensors have changed; not .*norm' "$work/silent-all.log" # matrices decay, norms do not
ok $? "nothing was learned, and it is not seen: $(grep '^masters' "$work/silent-all.log")"
grep -E '"perf/mfu/actor":0,"perf/mfu/actor_verl":0,' "$work/silent-all/metrics.jsonl" | grep -q '"step":2,'
ok $? "an update that computes nothing uses $(grep -o '"perf/mfu/[^,]*' "$work/silent-all/metrics.jsonl" | tr '\n' ' ')of the machine"
grep '"step":2,' "$work/silent-all/metrics.jsonl" | grep -q max_abs_logprob_diff
[ $? = 1 ] && grep -q '^step 2/3 .*exact diff none$' "$work/silent-all.log" && grep -q '^step 3/3 .*exact diff 0 ' "$work/silent-all.log"
ok $? "nothing compared: $(grep '^step 2/3' "$work/silent-all.log")"

# ---- kills: the run that goes on is the run that was never killed
steps="trainer.steps=6 trainer.save_every=2"
train whole $steps
ok $? "a run of 6 steps: $(tail -1 "$work/whole.log")"
all_exact whole
ok $? "exact/max_abs_logprob_diff is not 0 on every step"
grep -q '"actor/grad_norm":0,' "$work/whole/metrics.jsonl"
[ $? = 1 ]
ok $? "a step had no gradient: this test would see nothing"
kills=0
for at in $((RANDOM % 3 + 1)) $((RANDOM % 2 + 3)); do
    start killed $steps trainer.save_buffer=5000 & # the copy goes on through the next rollout, and is cut short by the kill
    child=$!
    wait_lines killed "$at"
    sleep 0.00$((RANDOM % 10))
    kill -9 $child 2>/dev/null && kills=$((kills + 1))
    { wait $child; } 2>/dev/null
    child=""
done
train killed $steps
ok $? "resuming after $kills kills: $(tail -1 "$work/killed.log")"
[ $kills -gt 0 ] || { skipped=$((skipped + 1)); echo "skipped: the run was over before it could be killed"; }
same_run whole killed 6 "after $kills kills"

# ---- a step's time is its own: all of them together are within the run's
begin=$(date +%s%N)
train clocked trainer.steps=30 trainer.save_every=1
took=$((($(date +%s%N) - begin) / 1000))
told=$(grep -oE '"timing_s/step":[0-9.e-]+' "$work/clocked/metrics.jsonl" | cut -d: -f2 | awk '{ s += $1 } END { printf "%d", s * 1e6 }')
[ "$told" -gt 0 ] && [ "$told" -le "$took" ]
ok $? "30 steps say that they took $told us, and the whole run took $took"

# ---- SIGTERM saves and exits 0
start told $steps &
child=$!
wait_lines told 1
kill -TERM $child
wait $child
ok $? "SIGTERM: exit code"
child=""
train told $steps
ok $? "resuming after SIGTERM: $(tail -1 "$work/told.log")"
same_run whole told 6 "after SIGTERM"
train told $steps
ok $? "a finished run started again: $(tail -1 "$work/told.log")"
same_run whole told 6 "a finished run started again"

# ---- a lost terminal is a stop, too, unless nohup said that it is none
launch="env --default-signal=HUP" start lost $steps trainer.steps=100000 & # this script itself may run under nohup
child=$!
wait_lines lost 2
kill -HUP $child
wait $child
ok $? "SIGHUP: exit code"
child=""
[ -d "$work/lost/checkpoints/step-$(printf %06d "$(lines "$work/lost/metrics.jsonl")")" ]
ok $? "SIGHUP: what was done is not saved: $(ls "$work/lost/checkpoints"), $(lines "$work/lost/metrics.jsonl") steps told"
(trap '' HUP; start kept $steps) &
child=$!
wait_lines kept 1
kill -HUP $child
wait $child
ok $? "SIGHUP under nohup: exit code"
child=""
same_run whole kept 6 "SIGHUP under nohup"

# ---- stops at any time, most of them in a long validation or between updates: the step is given up, finished, or told later
stops="trainer.steps=4 train.epochs=3 train.mini_batch_size=2 algo.kl_in_reward=true algo.kl_control=adaptive train.use_kl_loss=true
    data.val_files=[$work/sums.jsonl] trainer.val_every=1 rollout.val.n=4 rollout.val.temperature=1"
train stops-whole $stops
ok $? "a run that is never stopped: $(tail -1 "$work/stops-whole.log")"
asked=0 untold=0
while [ $asked -lt 40 ] && [ ! -d "$work/stops/checkpoints/step-000004" ]; do
    start stops $stops &
    child=$!
    while ! grep -q 'training data' "$work/stops.log" 2>/dev/null && kill -0 $child 2>/dev/null; do sleep 0.01; done
    sleep 0.$((RANDOM % 10))
    kill -TERM $child 2>/dev/null
    wait $child
    rc=$?
    [ $rc = 0 ] || [ $rc = 143 ] # before it listens, the signal ends it
    ok $? "told to stop: exit code $rc, $(tail -1 "$work/stops.log")"
    child=""
    asked=$((asked + 1))
    [ -d "$work/stops/checkpoints" ] && untold=$((untold + $(cat "$work"/stops/checkpoints/*/state.json | grep -c untold)))
done
train stops $stops
ok $? "resuming after $asked stops: $(tail -1 "$work/stops.log")"
same_run stops-whole stops 4 "after $asked stops" 
[ $untold -gt 0 ] || { skipped=$((skipped + 1)); echo "skipped: none of $asked stops met a validation"; }

# ---- saved by time: the same run, with other checkpoints
train timed trainer.steps=6 trainer.save_minutes=1e-9
ok $? "saving by time: $(tail -1 "$work/timed.log")"
[ -d "$work/timed/checkpoints/step-000005" ]
ok $? "nothing was saved by time: $(ls "$work/timed/checkpoints")"
same_run whole timed 6 "saved by time"

# ---- also while a scorer takes its time: nobody waits for its verdicts
start slow trainer.steps=3 reward.library=null reward.command='sleep 100' reward.timeout=90 reward.workers=1 &
child=$!
while ! grep -q 'training data' "$work/slow.log" 2>/dev/null && kill -0 $child 2>/dev/null; do sleep 0.05; done
sleep 1
from=$SECONDS
kill -TERM $child
wait $child
ok $? "SIGTERM while a scorer sleeps: exit code"
child=""
[ $((SECONDS - from)) -lt 20 ]
ok $? "SIGTERM while a scorer sleeps: the end took $((SECONDS - from)) s"

# ---- a damaged checkpoint is passed over, and the run ends equal
cp -r "$work/whole" "$work/hurt"
printf X | dd of="$work/hurt/checkpoints/step-000006/optimizer.safetensors" bs=1 seek=5000 conv=notrunc status=none
train hurt $steps
ok $? "resuming over a damaged checkpoint"
grep -q 'step-000006 is passed over' "$work/hurt.log"
ok $? "the damage was not said"
same_run whole hurt 6 "over a damaged checkpoint"

# ---- offload, recompute, threads, how a save is buffered: no effect on bits
train other $steps train.offload_fraction=0.3 train.recompute=full trainer.threads=2 trainer.save_every=1 trainer.save_buffer=10000
ok $? "offload and recompute: $(tail -1 "$work/other.log")"
same_run whole other 6 "offload 0.3, recompute full, 2 threads, saved through 10 kB"

# ---- the best answer alone teaches, the others are silent: killed and resumed, with several updates a step
silent="$steps algo.advantage=grpo_passk train.mini_batch_size=2 train.epochs=2"
train passk $silent
ok $? "grpo_passk: $(tail -1 "$work/passk.log")"
[ "$(grep -cE '"perf/silent_ratio":0\.(75|8|9)' "$work/passk/metrics.jsonl")" = 6 ] && all_exact passk
ok $? "grpo_passk: three of four answers or more (where two are best) should be silent: $(grep -o '"perf/silent_ratio":[^,]*' "$work/passk/metrics.jsonl" | tr '\n' ' ')"
start passk-killed $silent &
child=$!
wait_lines passk-killed 3
kill -9 $child 2>/dev/null
{ wait $child; } 2>/dev/null
child=""
train passk-killed $silent
ok $? "resuming grpo_passk: $(tail -1 "$work/passk-killed.log")"
same_run passk passk-killed 6 "grpo_passk after a kill"

# ---- the configuration that a run saved starts the same run
"$hone" train "$work/whole/config.yaml" trainer.run_dir="$work/again" >"$work/again.log" 2>&1
ok $? "the saved configuration: $(tail -1 "$work/again.log")"
same_run whole again 6 "the saved configuration"

# ---- two processes in one folder
start busy trainer.steps=100000 &
child=$!
wait_lines busy 1
"$hone" train model.path="$work/model" "data.train_files=[$work/sums.jsonl]" data.train_batch_size=4 data.max_prompt_length=16 data.max_response_length=12 \
    trainer.run_dir="$work/busy" >"$work/second.log" 2>&1
refused second $? 'is training here'
kill -TERM $child
wait $child
ok $? "the first process was disturbed"
child=""
train busy trainer.resume=never trainer.steps=1
refused busy $? 'trainer.resume is never'
train unsaved trainer.save=never trainer.steps=1 trainer.save_every=1
ok $? "a run that saves nothing: $(tail -1 "$work/unsaved.log")"
[ -z "$(find "$work/unsaved" -name 'step-*')" ]
ok $? "trainer.save=never left a checkpoint"

cp -r "$work/whole" "$work/changed"
train changed trainer.steps=7 trainer.save_every=2 train.lr=1e-4 trainer.threads=2
ok $? "going on with other settings: $(tail -1 "$work/changed.log")"
grep -q 'train.lr 0.001 -> 0.0001, trainer.steps 6 -> 7: changed since the last start$' "$work/changed/log.txt"
ok $? "what changed was not told: $(grep changed "$work/changed/log.txt")"
train whole trainer.steps=7 trainer.seed=9
refused whole $? 'met its data in another order'

# ---- every method, one step of two updates where it may
one() { # one NAME KEY=VALUE...: a step that moves the weights and is exact
    local name=$1
    shift
    train "$name" trainer.steps=1 trainer.tensorboard=false "$@"
    ok $? "$name: $(tail -1 "$work/$name.log")"
    all_exact "$name"
    ok $? "$name: not exact"
    grep -q '"actor/grad_norm":0,' "$work/$name/metrics.jsonl"
    [ $? = 1 ]
    ok $? "$name: no gradient"
    rm -rf "${work:?}/$name"
}
advantages="grpo dr_grpo rloo reinforce_plus_plus reinforce_plus_plus_baseline remax opo gpg grpo_passk"
losses="vanilla gspo sapo gpg cispo geo_mean kl_cov clip_cov dppo_tv dppo_kl dro"
for a in $advantages; do
    for l in $losses; do
        [ $mode = all ] || [ $a = grpo ] || [ $l = vanilla ] || continue
        one "$a-$l" algo.advantage=$a train.loss=$l $([ $l != dro ] || echo train.dro_beta=0.5)
    done
done
train cov trainer.steps=1 train.loss=kl_cov train.kl_cov_ratio=1e-9 train.mini_batch_size=1 train.shuffle=true train.epochs=2
grep -q '"actor/kl_cov_tokens":8,' "$work/cov/metrics.jsonl"
ok $? "kl_cov picks a token of each of 8 mini-batches: $(grep -o '"actor/kl_cov[^,]*' "$work/cov/metrics.jsonl") $(tail -1 "$work/cov.log")"
train clip_cov trainer.steps=1 train.loss=clip_cov train.clip_cov_ratio=1e-9 train.clip_cov_lb=-1e9 train.clip_cov_ub=1e9 train.mini_batch_size=1
grep -q '"actor/clip_cov_tokens":4,' "$work/clip_cov/metrics.jsonl"
ok $? "clip_cov picks a token of each of 4 mini-batches: $(grep -o '"actor/clip_cov[^,]*' "$work/clip_cov/metrics.jsonl") $(tail -1 "$work/clip_cov.log")"
one kl-in-loss train.use_kl_loss=true train.kl_loss_coef=0.1 train.kl_loss_type=k3
one kl-in-reward algo.kl_in_reward=true algo.kl_coef=0.1 algo.kl_control=adaptive
one filter-groups algo.filter_groups.enable=true algo.filter_groups.metric=acc
one entropy-bonus train.entropy_coef=0.01
one overlong algo.overlong.enable=true algo.overlong.buffer=6
one long-prompts data.max_prompt_length=4 data.truncation=left "data.val_files=[$work/sums.jsonl]" trainer.val_every=1
one minis train.epochs=2 train.mini_batch_size=2 train.shuffle=true
one top-p rollout.top_p=0.9 rollout.top_k=50 rollout.min_p=0.001 rollout.temperature=0.8
one small-cache rollout.kv_tokens=64 rollout.token_budget=7 rollout.max_batch=3
one budget rollout.step_tokens=100 rollout.max_batch=4
train cut trainer.steps=2 rollout.step_tokens=100 rollout.max_batch=4 trainer.samples=16
grep -q '"finish":"budget"' "$work/cut/samples.jsonl" && ! grep -q '"response/budget_ratio":0,' "$work/cut/metrics.jsonl" && all_exact cut
ok $? "a step's token budget did not cut, or was not told"

# ---- the kept sets travel: cut sampling with several updates a step and with a KL; at the first update the reference is the policy
sets="rollout.top_p=0.9 rollout.top_k=50 rollout.min_p=0.001 train.use_kl_loss=true train.kl_loss_coef=0.1"
train sets-one trainer.steps=1 $sets
all_exact sets-one && grep -q '"actor/kl_loss":0,' "$work/sets-one/metrics.jsonl"
ok $? "top-p with a KL: $(grep -o '"actor/kl_loss":[^,]*' "$work/sets-one/metrics.jsonl"), $(tail -1 "$work/sets-one.log")"
sets="$steps $sets algo.kl_in_reward=true train.epochs=2 train.mini_batch_size=2"
train sets $sets
ok $? "top-p with a KL and several updates: $(tail -1 "$work/sets.log")"
all_exact sets && ! grep -qE '"actor/(kl_loss|ppo_kl|grad_norm)":(0|null),' "$work/sets/metrics.jsonl"
ok $? "top-p with a KL and several updates: $(grep -oE '"actor/(kl_loss|ppo_kl|grad_norm)":[^,]*' "$work/sets/metrics.jsonl" | tr '\n' ' ')"
start sets-killed $sets &
child=$!
wait_lines sets-killed 3
kill -9 $child 2>/dev/null
{ wait $child; } 2>/dev/null
child=""
train sets-killed $sets trainer.threads=2
ok $? "top-p with a KL, resumed: $(tail -1 "$work/sets-killed.log")"
same_run sets sets-killed 6 "top-p with a KL after a kill"
train no-room $sets rollout.top_k=0 rollout.kept_bytes=5
ok $? "little room for kept sets: $(tail -1 "$work/no-room.log")"
all_exact no-room && grep -q '"finish":"room"' "$work/no-room/samples.jsonl" && ! grep -q '"response/no_room_ratio":0,' "$work/no-room/metrics.jsonl"
ok $? "little room for kept sets: no answer ended, or it was not told"
[ "$(grep -c 'no room for their kept sets' "$work/no-room/log.txt")" = 1 ]
ok $? "answers without room for kept sets: not said once"

# ---- what is wrong with a step is said when it begins
says() { # says RUN PATTERN TIMES
    [ "$(grep -c "$2" "$work/$1/log.txt")" = "$3" ]
    ok $? "$1: '$2' was said $(grep -c "$2" "$work/$1/log.txt") times, not $3"
}
train unjudged trainer.steps=2 reward.library=null reward.command='echo rubbish' reward.workers=1 reward.max_failed_ratio=1
says unjudged 'step 1: the scorer could judge no answer' 1
says unjudged 'could judge no answer' 1
train equal trainer.steps=3 reward.library=null reward.workers=1 \
    reward.command='i=0; while read -r l; do i=$((i + 1)); if [ $i -le 16 ]; then echo 0.$((i % 7)); else echo 0; fi; done'
says equal 'step 2: every answer has the same score' 1
says equal 'same score' 1
train no-acc trainer.steps=1 algo.filter_groups.enable=true algo.filter_groups.metric=acc reward.library=null reward.command='echo 1' reward.workers=1
refused no-acc $? 'metric is acc, but the scorer of data_source .openai/gsm8k. does not say it'

# ---- dynamic sampling: a question that comes twice in a step is answered anew; where no group is of use the step ends
head -4 "$work/sums.jsonl" >"$work/four.jsonl"
filter="data.train_files=[$work/four.jsonl] algo.filter_groups.enable=true reward.library=null reward.workers=1"
train twice $filter trainer.steps=1 "reward.command=tee '$work/asked' | while read -r l; do i=\$((i + 1)); if [ \$i -le 16 ]; then echo 0; else echo 0.\$i; fi; done"
ok $? "four questions twice: $(tail -1 "$work/twice.log")"
grep -q '"train/num_gen_batches":2,' "$work/twice/metrics.jsonl" && [ "$(wc -l <"$work/asked")" = 32 ]
ok $? "four questions twice: $(grep -o '"train/num_gen_batches":[^,]*' "$work/twice/metrics.jsonl"), $(wc -l <"$work/asked") answers"
sed 's/"id":[0-9]*,//' "$work/asked" | head -16 | sort >"$work/first"
sed 's/"id":[0-9]*,//' "$work/asked" | tail -16 | sort >"$work/second"
[ -s "$work/first" ] && ! cmp -s "$work/first" "$work/second"
ok $? "a question that comes twice in a step has the same answers twice"
train some trainer.steps=3 $filter reward.command='while read -r l; do i=$((i + 1)); if [ $i -le 32 ]; then echo 0.$i; else echo 1; fi; done' \
    algo.filter_groups.max_batches=0
refused some $? 'step 3: 10 batches in a row .* differ in score.*saved'
[ -d "$work/some/checkpoints/step-000002" ]
ok $? "what was done before a step without useful groups is not saved"
train some trainer.steps=3 $filter reward.command='while read -r l; do echo 1; done' algo.filter_groups.max_batches=2
refused some $? 'step 3: after 2 batches only 0 of 4 questions'

# ---- what cannot be judged earns no more than what is wrong, also where the scorer is the user's; a score beyond all sense is its error
train failing trainer.steps=1 trainer.samples=16 reward.library=null reward.workers=1 \
    reward.command='while read -r l; do case $l in *\"id\":[05],*) echo rubbish;; *\"id\":7,*) echo 1e308;; *\"id\":[1-4],*) echo -2.5;; *) echo 1;; esac; done' \
    reward.max_failed_ratio=0.5
ok $? "a scorer that fails at times: $(tail -1 "$work/failing.log")"
[ "$(grep -c '"score":-2.5,.*"failed":true' "$work/failing/samples.jsonl")" = 3 ] && [ "$(grep -c '"failed":true' "$work/failing/samples.jsonl")" = 3 ]
ok $? "failed scores above the lowest: $(grep -o '"score":[^,]*' "$work/failing/samples.jsonl" | tr '\n' ' ')"

# ---- nowhere to write to: a file stands where the folder should be; a disk that is full after the first checkpoint
touch "$work/file"
train nowhere trainer.steps=1 trainer.run_dir="$work/file/run"
refused nowhere $? 'cannot create'
train full trainer.steps=1 trainer.save_every=1
(ulimit -f 2000 && start full trainer.steps=3 trainer.save_every=1 trainer.save_buffer=65536)
refused full $? 'step 2 was not written (earlier ones are untouched)'
train full trainer.steps=3 trainer.save_every=1
ok $? "going on after a full disk: $(tail -1 "$work/full.log")"
train full-never trainer.steps=3 trainer.save_every=1
same_run full-never full 3 "after a full disk"
the_end
