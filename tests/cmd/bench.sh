#!/bin/bash
# bench.sh - `hone bench`: every measurement gives one JSON object with its figures, a timeline is one that can be read,
# and what makes no sense is refused.  Figures themselves are not looked at.
#   bash tests/cmd/bench.sh build/hone
hone=${1:-build/hone} passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
model=tests/data/models/qwen3_moe
small="--device cpu --threads 1 --repeats 1"
has() { # KEYS WORDS...: the object has these keys, all of them positive numbers
    local keys=$1
    shift
    "$hone" bench "$@" $small >"$work/out" 2>"$work/err"
    ok $? "bench $*: $(head -1 "$work/err")"
    python3 - "$work/out" $keys <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
sys.exit(any(not (isinstance(o.get(k), (int, float)) and o[k] > 0) for k in sys.argv[2:]))
PY
    ok $? "bench $*: not all of $keys are there: $(head -c 300 "$work/out")"
}
has "seconds least tokens_per_s tflops of_roof roof_tflops roof_gb_per_s loss" train-slice $model --tokens 64 --length 32 --profile "$work/t.json"
python3 - "$work/t.json" "$work/out" <<'PY'
import json, sys
e = [x for x in json.load(open(sys.argv[1]))["traceEvents"] if x["ph"] == "X"]
names = {x["name"] for x in e}
inside = [x for x in e if x["name"] == "forward"][0]
ops = [x for x in e if x["tid"] == 1 and inside["ts"] <= x["ts"] and x["ts"] + x["dur"] <= inside["ts"] + inside["dur"]]
lines = json.load(open(sys.argv[2]))["ops"]
sys.exit(not ({"forward", "backward", "attend", "attend_bwd", "grouped", "logprob_bwd"} <= names and len(ops) > 20 and len(lines) > 20
              and all(x["dur"] >= 0 for x in e)))
PY
ok $? "the timeline lacks phases or ops"
has "seconds tokens_per_s" train-slice $model --tokens 64 --length 32 --recompute full --layers 1
has "seconds tokens_per_s" logprob tests/data/models/deepseek_v3 --tokens 64 --length 32
has "seconds tokens_per_s prefill_tokens_per_s roof_tokens_per_s of_roof steps" decode $model --batch 3 --context 20 --answer 8 --tokens 16
has "seconds ops_ms" ops $model --tokens 64 --length 32
has "seconds params_per_s gb_per_s norm_gb_per_s" optimizer --params 100000
has "put_gb_per_s get_gb_per_s" link
has "seconds gb_per_s" load $model
has "patches put_seconds seconds pictures_per_s tflops of_roof" tower recipes/quickstart-vision/model/config.json --batch 1
refuses() { # MESSAGE WORDS...
    local want=$1
    shift
    ! "$hone" bench "$@" --device cpu >"$work/out" 2>"$work/err" && grep -q "$want" "$work/err"
    ok $? "bench $*: no '$want': $(head -1 "$work/err")"
}
refuses "no bench 'speed'" speed
refuses "has no vision tower" tower $model
refuses "wants a model" decode
refuses "wants no model" link $model
refuses "layers, 500 were asked for" train-slice $model --layers 500
refuses "not one sequence" train-slice $model --tokens 10 --length 32
refuses "none, selective or full" train-slice $model --recompute some
refuses "make --answer longer" decode $model --batch 3 --context 20 --answer 4 --tokens 16 --layers 1
if command -v mpirun >/dev/null && [ -f "$(dirname "$hone")/libhone_mpi.so" ]; then # between ranks, and a plan with what was measured
    ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --oversubscribe -n 2 "$hone" bench link $small --write "$work/links.yaml" >"$work/out" 2>"$work/err"
    ok $? "bench link on 2 ranks: $(tail -2 "$work/err")"
    [ "$(grep -cE '"call":"(all-reduce|all-to-all|send)","bytes":[0-9]+,"seconds":[0-9.e-]+,"gb_per_s":[0-9]' "$work/out")" = 12 ]
    ok $? "bench link on 2 ranks: $(head -c 300 "$work/out")"
    "$hone" plan tests/data/configs/Qwen2.5-0.5B.json --cluster "$work/links.yaml" --json >"$work/out" 2>"$work/err"
    grep -q '"gpus":2' "$work/out" && grep -q '^nvlink: [0-9.e+]*GB/s' "$work/links.yaml"
    ok $? "a plan with the measured links: $(cat "$work/err")"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
