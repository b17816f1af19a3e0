#!/bin/bash
# kernels.sh - no published model is served by a plain product or attention of the CUDA backend (`hone inspect --device cuda`, no GPU needed).
hone=$1
passed=0 failed=0
"$hone" inspect tests/data/models/qwen3 --device cuda 2>&1 | grep -q "no CUDA backend" && { echo "no CUDA backend in this build"; exit 77; }
for m in tests/data/configs/*.json; do
    case $m in *VL*) continue ;; esac
    out=$("$hone" inspect "$m" --device cuda 2>&1)
    if [ $? = 0 ] && grep -q "attend_kv  *tensor cores" <<<"$out" && ! grep -q plain <<<"$out"; then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $m: $(grep -E "plain|hone" <<<"$out" | tr -s ' ' | tr '\n' ';')"
    fi
done
# a model of narrow heads is: the word would be seen
if "$hone" inspect tests/data/models/qwen3 --device cuda | grep -q "attend  *plain"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED heads of 8 on a fast kernel"; fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
