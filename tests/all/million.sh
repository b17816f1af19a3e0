#!/bin/bash
# million.sh - one million tokens sampled and scored (tests/engine/test_million.c says over which models and how): the
# largest difference of log-probs, the entropies and the routes that differ.
#   bash tests/all/million.sh build/hone [DIR [MODEL...]]
program=$(dirname "$1")/tests/engine/test_million
shift; shift
models=${*:-llama qwen2 qwen3 qwen3_moe qwen3_moe_plain mixtral deepseek_v3 moonlight deepseek_v3_yarn random-llama random-qwen2
 random-qwen3 random-qwen3_moe random-mixtral random-deepseek_v3 random-moonlight}
passed=0 failed=0 tokens=0 largest=0 entropies=0 routes=0 differing=0 forks=0 cached=0 preempted=0
for m in $models; do
    out=$("$program" --all "$m" 2>&1)
    rc=$?
    read -r _ t _ l _ e _ r _ d _ f _ c _ p <<<"$(grep '^tokens' <<<"$out")"
    read -r ok _ bad _ <<<"$(grep -E '^[0-9]+ passed, ' <<<"$out")"
    if [ $rc != 0 ]; then grep -E 'FAILED|hone' <<<"$out"; [ "${bad:-0}" -gt 0 ] || bad=1; fi
    passed=$((passed + ${ok:-0})) failed=$((failed + ${bad:-1}))
    tokens=$((tokens + ${t:-0})) entropies=$((entropies + ${e:-1})) routes=$((routes + ${r:-0})) differing=$((differing + ${d:-1}))
    forks=$((forks + ${f:-0})) cached=$((cached + ${c:-0})) preempted=$((preempted + ${p:-0}))
    [ "${l:-1}" = 0 ] || largest=$l
    echo "$m: ${t:-0} tokens, largest difference ${l:-?}, ${d:-?} of ${r:-?} routes differ ($SECONDS s)"
done
if [ $# = 0 ]; then
    if [ $tokens -ge 1000000 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: only $tokens tokens"; fi
fi
echo "$tokens tokens: largest difference of log-probs $largest, $entropies entropies differ, $differing of $routes routes differ;" \
    "$forks forks, $cached tokens found in the cache, $preempted preempted ($SECONDS s)"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
