#!/bin/bash
# profile.sh - trainer.profile: a run with a timeline is the run without one, byte for byte, and its timeline has every
# phase's ops.
#   bash tests/cmd/profile.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 16
train plain trainer.steps=2
ok $? "a run: $(tail -1 "$work/plain.log")"
train timed trainer.steps=2 trainer.profile="$work/t.json"
ok $? "a run with a timeline: $(tail -1 "$work/timed.log")"
same_run plain timed 2 "with a timeline"
expect "a timeline" "$work/timed.log" "the timeline is in $work/t.json"
python3 - "$work/t.json" <<'PY'
import json, sys
e = [x for x in json.load(open(sys.argv[1]))["traceEvents"] if x["ph"] == "X"]
sys.exit(not ({"extend", "forward", "backward", "sample", "logprob", "logprob_bwd", "adamw", "sumsq"} <= {x["name"] for x in e} and all(x["dur"] >= 0 for x in e)))
PY
ok $? "the timeline lacks phases or ops"
# NVTX hears of the same ranges, where its library is
(export RANGES=$work/ranges LD_LIBRARY_PATH=$(dirname "$hone")/shims && train named trainer.steps=2 trainer.profile="$work/u.json")
ok $? "a run with NVTX: $(tail -1 "$work/named.log")"
read -r begun ended <"$work/ranges" && [ "$begun" -gt 100 ] && [ "$begun" = "$ended" ]
ok $? "NVTX's ranges: $(cat "$work/ranges" 2>&1)"
train nowhere trainer.steps=1 trainer.profile="$work/no/such/t.json"
refused nowhere $? "no/such/t.json"
the_end
