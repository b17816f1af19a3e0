#!/bin/bash
# verify.sh - every text model of the reference, in both spellings of its config, with every kind of recomputation and
# in checking mode: `hone verify` must agree with transformers' values; and the algorithms with verl's.
hone=$1
passed=0 failed=0 skipped=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
add() { # add WHAT COMMAND...
    local what=$1 line p f s
    shift
    "$@" >"$tmp/out" 2>&1
    local rc=$?
    line=$(grep -E '^[0-9]+ passed' "$tmp/out" | tail -1)
    if [ $rc != 0 ] || [ -z "$line" ]; then echo "FAILED $what: $(grep -E 'FAILED|hone' "$tmp/out" | head -3)"; fi
    read -r p _ f _ s _ <<<"${line//,/}"
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
    [ $rc = 0 ] || [ "${f:-1}" != 0 ] || failed=$((failed + 1))
}
k=0
for m in tests/data/models/*/; do
    n=$(basename "$m")
    k=$((k + 1))
    kinds=(none selective full)
    add "$n" "$hone" verify "$m" --recompute "${kinds[$((k % 3))]}" --guard
    [ -f "$m/config_v5.json" ] || continue
    cp -r "$m" "$tmp/$n"
    cp "$m/config_v5.json" "$tmp/$n/config.json"
    add "$n, newer config" "$hone" verify "$tmp/$n" --golden "$m" --threads 1
    rm -rf "${tmp:?}/$n"
done
add "algorithms" "$hone" verify --algos tests/data/verl/algos.json
add "calls and reasoning" "$hone" verify tests/data/tools/
add "partitions" "$hone" verify --balance tests/data/verl/balance.json
if "$hone" verify tests/data/models/qwen3_moe --json | grep -qE '^\{"checks":\[\{"check":"log-probs","result":"ok",.*\}\],"passed":8,"failed":0,"skipped":0\}$'; then
    passed=$((passed + 1))
else echo "FAILED: verify --json"; failed=$((failed + 1)); fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
