#!/bin/bash
# compare.sh - `hone compare` of two small runs written here: the numbers in its table and in its JSON, settings that
# differ, what it refuses.
#   bash tests/cmd/compare.sh build/hone
. tests/cmd/train_common.bash
cd "$work" || exit 1
make_run() { # make_run NAME SCORE LR
    mkdir "$1"
    for s in 1 2 3 4; do printf '{"step":%d,"critic/score/mean":%s,"actor/entropy":0.5,"only/%s":1}\n' $s "$2" "$1"; done >"$1/metrics.jsonl"
    printf 'train:\n  lr: %s # command line\n  clip_grad: 1\n' "$3" >"$1/config.yaml"
}
make_run a 0.25 1e-6
make_run b 0.75 '"2e-6"'

"$hone" compare a b --last 2 >text 2>&1
ok $? "compare: its exit code"
expect "the table" text 'critic/score/mean +0\.25 +0\.75 +\+0\.5'
expect "the settings" text 'train\.lr +1e-6 +-> +"2e-6"'
"$hone" compare a b --json >json 2>&1
ok $? "compare --json: its exit code"
expect "means in JSON" json '^\{"metrics":\{"critic/score/mean":\[0\.25,0\.75\],"actor/entropy":\[0\.5,0\.5\]\}'
expect "settings in JSON" json '"settings":\{"train\.lr":\["1e-6","\\"2e-6\\""\]\}\}$'
"$hone" compare a b --metric nope >text 2>&1
[ $? = 1 ]; ok $? "a metric that is not there was plotted"
expect "a metric that is not there" text 'no metric nope'
"$hone" compare a nothing >text 2>&1
[ $? = 1 ]; ok $? "a run that is not there was compared"
expect "a run that is not there" text 'nothing'
the_end
