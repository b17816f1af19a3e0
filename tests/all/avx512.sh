#!/bin/bash
# avx512.sh - the operations' tests with ASan and UBSan in the AVX-512 kernels (./check has them in the AVX2 ones),
# where the processor has them; else skipped.
#   bash tests/all/avx512.sh build/hone
grep -qw avx512f /proc/cpuinfo || { echo "this processor has no AVX-512"; exit 77; }
. tools/packages.sh # (warnings are left to ./check: a sanitizer adds some about what it keeps from being optimised)
tests="op/test_attend op/test_chain op/test_head op/test_head_ends op/test_moe op/test_product op/test_rows layer/test_layers"
[ -f build-asan512/build.ninja ] || cmake -S . -B build-asan512 -G Ninja -DHONE_SANITIZE=ON -DHONE_SANITIZE_AVX512=ON >build-asan512.log 2>&1 ||
    { cat build-asan512.log; exit 1; }
rm -f build-asan512.log
ninja -C build-asan512 $(printf 'tests/%s ' $tests) >build-asan512/ninja.log 2>&1 || { tail -40 build-asan512/ninja.log; exit 1; }
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for t in $tests; do
    build-asan512/tests/$t >"$log" 2>&1 </dev/null
    rc=$?
    read -r p _ f _ s _ < <(grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$log" | tail -1 | tr -d ,)
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    [ $rc = 0 ] && continue
    [ "${f:-0}" != 0 ] || failed=$((failed + 1))
    echo "FAILED: $t: exit code $rc"
    grep -E 'FAILED|ERROR: AddressSanitizer|runtime error' "$log" | head
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
