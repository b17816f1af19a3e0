#!/bin/bash
# plan.sh - what `hone plan` promises about time: a step of 12 small configurations within 25 % of the measurement, a
# whole search below 5 s, a better balanced layout than the published one, and a plan without any machine.
#   bash tests/all/plan.sh build/hone [DIR]
hone=$1
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
out=$("$(dirname "$hone")/bench/bench_plan" 2>&1)
ok $? "bench_plan: $(tail -1 <<<"$out")"
grep -q ' 12 of 12 steps within 25 %' <<<"; $out"
ok $? "$(tail -1 <<<"$out")"
dapo="--kl --prompts 96 --answers 8 --mini 32 --mean 1960 --max 9632 --prompt-max 2048"
start=$(date +%s%N)
out=$("$hone" plan tests/data/configs/DeepSeek-V3.json --cluster H20-96x96 --search $dapo --tp 8 --pp 12 --ep 8 --split last=6 --offload 1 --park --rollout-tp 32 --rollout-memory 0.6)
ok $? "the search failed"
ms=$((($(date +%s%N) - start) / 1000000))
[ $ms -lt 5000 ]
ok $? "the search took $ms ms"
echo "search of DeepSeek-V3 on 96 H20: $ms ms"
grep -q 'loses by' <<<"$out" && grep -q 'slowest / mean' <<<"$out"
ok $? "the search does not say why the next one loses, or how balanced the best is"
env -i "$hone" plan tests/data/configs/Qwen3-30B-A3B.json --cluster H20-96x8 >/dev/null
ok $? "a plan from a config.json alone"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
