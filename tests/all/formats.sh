#!/bin/bash
# formats.sh - quickstart's task with weights and optimizer states in fewer bits: each ends above 0.92 on 200 held-out
# questions (float32: 0.985 with this seed, 0.955 with another), with log-probs that are the sampler's in every step.
#   bash tests/all/formats.sh build/hone
[ "$(realpath "$1")" = "$(realpath build/hone)" ] || { echo "quickstart uses build/hone"; exit 1; }
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
while read -r bytes settings; do
    ./quickstart --seed 1 $settings >"$log" 2>&1
    ok $? "$settings: $(tail -1 "$log")"
    end=$(sed -nE 's/.*held-out accuracy went from .* to ([0-9.]+) in.*/\1/p' "$log") m=runs/quickstart-1/grpo/metrics.jsonl
    echo "$bytes bytes a parameter ($settings): $end"
    awk -v a="$end" 'BEGIN { exit !(a > 0.92) }'
    ok $? "$settings: $end"
    [ "$(grep -cE '"exact/max_abs_logprob_diff":0,"exact/tokens":[1-9]|"exact/tokens":0,' $m)" = "$(grep -c 'actor/loss' $m)" ]
    ok $? "$settings: not every step is exact"
done <<'END'
12 train.weights=bf16
4 train.moments=bf16
8 train.weights=bf16 train.moments=bf16
6 train.weights=bf16 train.master=remainder train.moments=bf16
END
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
