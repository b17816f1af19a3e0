#!/bin/bash
# quickstart.sh - ./quickstart with three seeds: each learns to above 0.9 on held-out questions (it exits non-zero
# otherwise), with log-probs that are the sampler's in every step; the first seed again gives the same metrics (times
# aside) and weights.
#   bash tests/all/quickstart.sh build/hone [DIR [SEED...]]
[ "$(realpath "$1")" = "$(realpath build/hone)" ] || { echo "quickstart uses build/hone"; exit 1; }
shift; shift
seeds=${*:-1 2 3 1}
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
untimed() { sed -E 's/"(timing_s|timing_per_token_ms|perf)\/[^"]*":[^,}]*,?//g' "$1/metrics.jsonl"; }
for seed in $seeds; do
    run=runs/quickstart-$seed
    ./quickstart --seed "$seed" >"$work/log" 2>&1
    ok $? "seed $seed: $(tail -1 "$work/log")"
    grep 'held-out accuracy went' "$work/log" | sed "s/^== /seed $seed: /"
    [ "$(grep -cE '"exact/max_abs_logprob_diff":0,"exact/tokens":[1-9]|"exact/tokens":0,' "$run/grpo/metrics.jsonl")" = "$(grep -c 'actor/loss' "$run/grpo/metrics.jsonl")" ]
    ok $? "seed $seed: not every step is exact"
    if [ -d "$work/$seed" ]; then
        cmp -s "$work/$seed/better/model.safetensors" "$run/better/model.safetensors"
        ok $? "seed $seed twice: the weights differ"
        [ "$(untimed "$work/$seed/grpo")" = "$(untimed "$run/grpo")" ] && [ "$(untimed "$work/$seed/sft")" = "$(untimed "$run/sft")" ]
        ok $? "seed $seed twice: the metrics differ"
    fi
    mkdir -p "$work/$seed/grpo" "$work/$seed/sft"
    cp -r "$run/better" "$work/$seed/" && cp "$run/grpo/metrics.jsonl" "$work/$seed/grpo/" && cp "$run/sft/metrics.jsonl" "$work/$seed/sft/"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
