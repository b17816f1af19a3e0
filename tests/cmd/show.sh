#!/bin/bash
# show.sh - `hone show` of a small run written here: its plots, its list, its JSON, the best and worst answers, what it
# refuses.
#   bash tests/cmd/show.sh build/hone
. tests/cmd/train_common.bash
cd "$work" || exit 1
mkdir run
for s in $(seq 20); do
    if [ $s = 7 ]; then val=',"val-core/score/mean":0.25'; else val=; fi
    printf '{"step":%d,"critic/score/mean":%d,"odd/one":null%s}\n' "$s" "$s" "$val"
done >run/metrics.jsonl
for s in 3 1 2; do printf '{"step":%d,"input":"question %d","output":"answer\\n%d","gts":"%d","score":%d}\n' $s $s $s $s $s; done >run/samples.jsonl
echo 'half a li' >>run/samples.jsonl

"$hone" show run --samples 1 >text 2>&1
ok $? "show: its exit code"
expect "the steps" text '^run: steps 1 to 20$'
expect "a plot's title" text 'critic/score/mean   last 20, mean of the last 10 15\.5'
expect "an old value's plot" text 'val-core/score/mean   last 0\.25 \(step 7\), mean'
expect "the best answer" text '^best answer 1: score 3 at step 3$'
expect "the worst answer" text '^worst answer 1: score 1 at step 1$'
"$hone" show run --list >text 2>&1
ok $? "show --list: its exit code"
expect "the list" text '^critic/score/mean +20$'
expect "an old value in the list" text '^val-core/score/mean +0\.25 \(step 7\)$'
"$hone" show run --json --samples 2 >json 2>&1
ok $? "show --json: its exit code"
expect "steps and metrics in JSON" json '^\{"first_step":1,"last_step":20,"metrics":\{"critic/score/mean":\{"last":20(\.0)?,"mean":15\.5,"step":20\},"val-core/score/mean":\{"last":0\.25,"mean":0\.25,"step":7\}'
expect "the best in JSON" json '"best":\[\{"step":3,.*\},\{"step":2,.*\}\],"worst":\[\{"step":1,'
expect "one line of JSON" json '\}\]\}$'
"$hone" show run --csv >text 2>&1
ok $? "show --csv: its exit code"
expect "a header" text '^step,critic/score/mean,val-core/score/mean$'
expect "a row a step" text '^20,20(\.0)?,$'
mkdir dump # as verl writes answers
for s in 2 10; do for k in 1 2; do printf '{"input":"q%d","output":"a%d","gts":"g","score":%d,"step":%d,"acc":true,"pred":"x"}\n' $k $k $((s * k)) $s; done >dump/$s.jsonl; done
"$hone" show dump --samples 1 >text 2>&1
ok $? "show of a dump: its exit code"
expect "the steps of a dump, by number" text '^dump: steps 2 to 10$'
expect "the best answer of a dump" text '^best answer 1: score 20 at step 10$'
"$hone" show dump --csv >text 2>&1
expect "means over a step" text '^10,2(\.0)?,15(\.0)?,1(\.0)?$'
"$hone" show dump/2.jsonl --list >text 2>&1
expect "one file of a dump" text '^critic/score/mean +3$'
printf '{"step":1,"data":{"critic/score/mean":0.5}}\n' >verl.jsonl # its file logger
"$hone" show verl.jsonl --list >text 2>&1
expect "verl's file logger" text '^critic/score/mean +0\.5$'
"$hone" show run --metric nope >text 2>&1
[ $? = 1 ]; ok $? "a metric that is not there was plotted"
expect "a metric that is not there" text 'no metric nope'
"$hone" show nothing >text 2>&1
[ $? = 1 ]; ok $? "a run that is not there was shown"
expect "a run that is not there" text 'nothing'
the_end
