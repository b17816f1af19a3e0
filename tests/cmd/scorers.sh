#!/bin/bash
# scorers.sh - outside scorers as a user meets them: nothing of them outlives a kill, a file that is edited does not judge
# half of a run, numbers reach them as they stand in the data, and what is read in samples.jsonl is what they judged.
#   bash tests/cmd/scorers.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 16
own="reward.library=null reward.workers=1" # beside train's usual options

# ---- a kill -9, whatever was being judged.  All that a run starts has its mark in the environment.
of_run() { # of_run MARK: numbers of the processes of that run which are not zombies
    grep -lsaF "SCORERS_MARK=$1." /proc/[0-9]*/environ | cut -d/ -f3
}
gone() { # gone MARK WHAT: none of it is left, soon
    local i
    for ((i = 0; i < 200; i++)); do
        [ -z "$(of_run "$1")" ] && break
        sleep 0.05
    done
    [ -z "$(of_run "$1")" ]
    ok $? "$2 left $(of_run "$1" | while read -r p; do tr '\0' ' ' <"/proc/$p/cmdline" | cut -c1-60; done)"
    of_run "$1" | xargs -r kill -9
}
busy() { # busy FILE N PID: until so many scorers are at work, or the run is gone
    while [ "$(lines "$1")" -lt "$2" ] && kill -0 "$3" 2>/dev/null; do sleep 0.02; done
}
cat >"$work/busy.py" <<END
import os, subprocess
def compute_score(solution_str):
    child = subprocess.Popen(["sleep", "1000"])
    with open("$work/at_work", "a") as f:
        f.write("%d\n" % child.pid)
    while True:
        pass
END
echo "sleep 1000 & echo \$! >>'$work/at_work'; while :; do :; done" >"$work/busy.sh"
echo '{"data_source":"x","solution_str":"a","ground_truth":"b"}' >"$work/one.jsonl"
cat "$work/one.jsonl" "$work/one.jsonl" >"$work/two.jsonl"
for kind in "python $work/busy.py" "command . '$work/busy.sh'"; do
    rm -f "$work/at_work"
    SCORERS_MARK=${kind%% *}$$. "$hone" grade --"${kind%% *}" "${kind#* }" --workers 2 --timeout 600 --in "$work/two.jsonl" >/dev/null 2>&1 &
    child=$!
    busy "$work/at_work" 2 $child
    [ "$(of_run "${kind%% *}$$" | wc -l)" -ge 5 ] # hone, two scorers and their children
    ok $? "${kind%% *}: $(of_run "${kind%% *}$$" | wc -l) processes"
    kill -9 $child
    { wait $child; } 2>/dev/null
    child=""
    gone "${kind%% *}$$" "hone grade --${kind%% *}, killed,"
done
if command -v mpirun >/dev/null && [ -f "$(dirname "$hone")/libhone_mpi.so" ]; then
    rm -f "$work/at_work"
    launch="$(under_ranks 2)"
    export SCORERS_MARK=ranks$$.
    start ranks $own reward.workers=2 reward.python="$work/busy.py" reward.timeout=600 &
    child=$!
    unset SCORERS_MARK launch
    busy "$work/at_work" 4 $child
    rank=$(for p in $(of_run "ranks$$"); do [ "$(cat /proc/$p/comm)" = hone ] && echo $p; done | head -1)
    [ -n "$rank" ] && kill -9 "$rank"
    ok $? "no rank was found: $(tail -1 "$work/ranks.log")"
    { wait $child; } 2>/dev/null
    child=""
    gone "ranks$$" "one of two ranks, killed,"
else skipped=$((skipped + 1)) && echo "skipped: there is no mpirun"; fi

# ---- a command's own file is edited: the process that replaces another would be another scorer
cat >"$work/score.sh" <<'END'
while read -r line; do
    case $line in *edit*) sed -i 's/0.25/0.75/' "$0"; exit 3 ;; esac
    echo 0.25
done
END
for word in a edit b; do sed "s/\"a\"/\"$word\"/" "$work/one.jsonl"; done >"$work/three.jsonl"
"$hone" grade --command "sh $work/score.sh 2>>$work/log.sh" --workers 1 --in "$work/three.jsonl" >"$work/out" 2>/dev/null
[ "$(grep -c '"score":0.25}' "$work/out")" = 1 ] && [ "$(sed -n 3p "$work/out" | grep -c 'score.sh has changed since the scorer was first started: put it back, or start again')" = 1 ]
ok $? "an edited scorer judged: $(cat "$work/out")"
"$hone" grade --command "sh $work/score.sh" --workers 1 --in "$work/one.jsonl" 2>/dev/null | grep -q '"score":0.75'
ok $? "the edited scorer, started again"

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
grep -qE '"kl_coef":(1e-07|1.0000000000000001e-07)[,}]' "$work/kl/checkpoints/step-000002/state.json"
ok $? "the coefficient: $(grep -o '"kl_coef":[^,}]*' "$work"/kl/checkpoints/*/state.json)"
the_end
