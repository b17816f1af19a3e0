#!/bin/bash
# threads.sh - ThreadSanitizer over the tests that use threads: the pool, the ring of a save, chains of calls,
# attention's backward (whose tiles wait for each other), layers, scorers, the engine, the checkpoint's writer; and over
# a run of hone train and hone sft.
#   bash tests/all/threads.sh build/hone
. tools/packages.sh
repo=$PWD
tests="base/test_threads base/test_ring op/test_chain op/test_attend layer/test_layers task/test_dataset task/test_reward task/test_reward_external
       engine/test_engine train/test_checkpoint"
[ -f build-tsan/build.ninja ] || cmake -S . -B build-tsan -G Ninja -DHONE_TSAN=ON >build-tsan.log 2>&1 || { cat build-tsan.log; exit 1; }
rm -f build-tsan.log
scorers=$(for f in examples/reward_*.c tests/data/scorers/*.c; do echo "scorers/$(basename "$f" .c).so"; done)
ninja -C build-tsan hone $(printf 'tests/%s ' $tests) $scorers >build-tsan/ninja.log 2>&1 || { tail -40 build-tsan/ninja.log; exit 1; }
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TSAN_OPTIONS=exitcode=66 # a race, whatever the program says itself
clean() { # clean WHAT COMMAND...
    local what=$1 rc
    shift
    "$@" >"$work/log" 2>&1 </dev/null
    rc=$?
    if [ $rc = 0 ] && ! grep -q 'WARNING: ThreadSanitizer' "$work/log"; then passed=$((passed + 1)); return; fi
    failed=$((failed + 1))
    echo "FAILED: $what: exit code $rc, $(grep -c 'WARNING: ThreadSanitizer' "$work/log") races"
    grep -m1 -A14 'WARNING: ThreadSanitizer' "$work/log"
    grep FAILED "$work/log" | head -4
}
for t in $tests; do
    case $t in op/test_attend) more=--bits ;; *) more="" ;; esac
    clean $t build-tsan/tests/$t $more
done
hone=$repo/build-tsan/hone
cd "$work" || exit 1
"$hone" random "$repo/recipes/quickstart/model" model >/dev/null
for i in 1 2 3 4 5 6 7 8; do echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"'$i+1'"}],"reward_model":{"style":"rule","ground_truth":"'$((i + 1))'"}}'; done >q.jsonl
for i in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$i+1'","response":"'$((i + 1))'"}'; done >pairs.jsonl
both="model.path=model train.micro_tokens=64 trainer.steps=4 trainer.save_every=1 trainer.threads=4 trainer.peak_tflops=0.1"
for buffer in 0 100000; do
    clean "hone train, trainer.save_buffer=$buffer" "$hone" train $both data.train_files=q.jsonl data.val_files=q.jsonl data.train_batch_size=4 data.max_prompt_length=16 data.max_response_length=8 \
        rollout.n=4 reward.library="$repo/build-tsan/scorers/low_bytes.so" trainer.val_every=2 trainer.save_buffer=$buffer trainer.run_dir=run$buffer
    clean "hone sft, trainer.save_buffer=$buffer" "$hone" sft $both data.train_files=pairs.jsonl data.val_files=pairs.jsonl sft.batch_size=4 sft.max_length=32 trainer.save_buffer=$buffer trainer.run_dir=sft$buffer
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
