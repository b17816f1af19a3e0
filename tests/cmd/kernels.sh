#!/bin/bash
# kernels.sh - no published model is served by a plain product or attention of the CUDA backend (`hone inspect --device
# cuda`, no GPU needed), and a compiler that says that it serialised tensor cores ends the build.
hone=$1
passed=0 failed=0
says() { # says CODE NOTE: a compiler that prints the note and ends well, through tools/nvcc.sh
    bash tools/nvcc.sh bash -c 'echo "$1"; exit $2' - "$2" "${3:-0}" >/dev/null
    if [ $? = "$1" ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: a build is not ended as it should be by: $2"; fi
}
says 1 "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources in function 'f'"
says 1 "ptxas info    : (C7520) Potential Performance Loss: 'setmaxnreg' ignored"
says 0 "ptxas info    : (C7519) warpgroup.arrive is injected in around line 1698 by compiler to allow use of registers in GMMA in function 'f'"
says 7 "error: no such thing" 7
"$hone" inspect tests/data/models/qwen3 --device cuda 2>&1 | grep -q "no CUDA backend" && { echo "no CUDA backend in this build"; exit 77; }
for m in tests/data/configs/*.json; do
    # heads of 256 by 256 have no fast attend_bwd, delta nets no kernel at all; both families are refused on a GPU
    [[ $m = *GLM-4.7-Flash* || $m = *Qwen3-Next* ]] && continue
    out=$("$hone" inspect "$m" --device cuda 2>&1)
    if [ $? = 0 ] && grep -q "attend_kv  *tensor cores" <<<"$out" && ! grep -q plain <<<"$out" &&
        { [[ $m != *VL* ]] || grep -q "attend_all_bwd  *tensor cores" <<<"$out"; }; then passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $m: $(grep -E "plain|hone" <<<"$out" | tr -s ' ' | tr '\n' ';')"
    fi
done
# a model of narrow heads is: the word would be seen
if "$hone" inspect tests/data/models/qwen3 --device cuda | grep -q "attend  *plain"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED heads of 8 on a fast kernel"; fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
