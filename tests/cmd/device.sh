#!/bin/bash
# device.sh HONE - which device a verb takes (trainer.device, --device): with no backend or one that finds no GPU of its
# kind auto computes on the CPU and says so in one line; a GPU that fails is an error with its remedy, unless the CPU is
# asked for.  The backend is a stand-in that says what it is told to, so the rules of the program are what is tried;
# what the real one makes of a driver's answers: tests/op/test_device.c.
hone=$(readlink -f "$1")
root=$PWD
command -v cc >/dev/null || { echo "no C compiler"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $2"; fi; }
cp "$hone" "$work/hone"
cat >"$work/stand_in.c" <<'END'
#include "op/cuda_open.h"
#include <stdio.h>
#include <stdlib.h>
CudaState hone_cuda_open(Dev *d, const CudaOpts *o, size_t sizes, Err *err);
CudaState hone_cuda_open(Dev *d, const CudaOpts *o, size_t sizes, Err *err) {
    (void)d;
    snprintf(err->msg, sizeof err->msg, "%s %d %s", sizes == CUDA_SIZES ? "stand-in" : "sizes", o ? o->gpu : -1,
             getenv("CUDA_MODULE_LOADING"));
    return STATE;
}
END
backend() { cc -std=gnu11 -shared -fPIC -I "$root/src" -DSTATE="$1" -o "$work/libhone_cuda.so" "$work/stand_in.c"; }
"$hone" random "$root/recipes/quickstart/model" "$work/model" >/dev/null
# tried RC LINES WORDS ARGUMENTS...: exit code, lines of standard error, what they hold
tried() {
    local rc=$1 lines=$2 words=$3 got
    shift 3
    (cd "$work" && ./hone "$@" >out 2>err </dev/null)
    got=$?
    [ $got = "$rc" ] && [ "$(wc -l <"$work/err")" = "$lines" ] && { [ -z "$words" ] || grep -qF -- "$words" "$work/err"; }
    ok $? "hone $*: exit code $got, $rc wanted, and $lines lines with '$words' in: $(head -3 "$work/err")"
}
echo '{"prompt":[{"role":"user","content":"1+1"}],"response":"2","reward_model":{"ground_truth":"2"},"data_source":"openai/gsm8k"}' >"$work/q.jsonl"
score="score model --in in.jsonl"
echo '{"tokens":[1,2,3]}' >"$work/in.jsonl"
card=0 words="" # without a card nothing is missing: nothing is said
[ -e /dev/nvidiactl ] && card=1 words="hone: computing on the CPU: "
tried 0 $card "${words:+${words}this build has no CUDA backend}" $score
tried 0 $card "${words:+${words}this build has no CUDA backend}" $score --device auto
tried 0 0 "" $score --device cpu
tried 1 1 "device cuda: this build has no CUDA backend" $score --device cuda
tried 1 1 "device 'gpu': auto, cpu, cuda or cuda:N wanted" $score --device gpu
backend CUDA_ABSENT
tried 0 $card "${words:+${words}stand-in 0}" $score
tried 0 0 "" $score --device cpu
tried 1 1 "device cuda: stand-in 0 EAGER" $score --device cuda # kernels are loaded before memory is counted,
CUDA_MODULE_LOADING=LAZY tried 1 1 "device cuda: stand-in 0 LAZY" $score --device cuda # unless somebody wants otherwise
tried 1 1 "device cuda:3: stand-in 3" $score --device cuda:3
backend CUDA_FAILS
tried 1 1 "device auto: stand-in 0" $score
tried 1 1 "device cuda: stand-in 0" $score --device cuda
tried 0 0 "" $score --device cpu
# every verb that computes takes the word, and says the same
tried 1 1 "device cuda:2: stand-in 2" generate model --in in.jsonl --device cuda:2
tried 1 1 "device cuda:2: stand-in 2" eval model q.jsonl --device cuda:2
tried 1 1 "device cuda:2: stand-in 2" chat model --device cuda:2
tried 1 1 "device cuda:2: stand-in 2" verify model --device cuda:2
tried 1 1 "device cuda:2: stand-in 2" bench link --device cuda:2
few="model.path=model trainer.val_every=0 trainer.val_before_train=false trainer.steps=1 trainer.run_dir=run data.train_files=[q.jsonl]"
for verb in train sft; do
    config=$([ $verb = sft ] && echo sft || echo grpo)
    tried 1 1 "device cuda:2: stand-in 2" $verb "$root/recipes/quickstart/$config.yaml" $few --device cuda:2
    tried 1 1 "device cuda:2: stand-in 2" $verb "$root/recipes/quickstart/$config.yaml" $few trainer.device=cuda:2
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
