#!/bin/bash
# vision.sh - 50,000 tokens sampled with 1 to 4 pictures, chunked prefill through them, prefix hits and preemption: the
# trainer's log-probs are the sampler's; the vision quickstart learns with three seeds, and the first, killed twice and
# resumed, ends with the same bytes.
#   bash tests/all/vision.sh build/hone
hone=$(realpath "$1")
root=$(pwd) passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
recipe=$root/recipes/quickstart-vision
cp tests/data/vision/{photo,half,same,wide,palette,rgba,tall}.png tests/data/vision/{jpeg420.jpg,lossy.webp} "$tmp"
cd "$tmp" || exit 1
"$hone" random "$recipe/model/config.json" model --seed 3 >/dev/null && cp "$recipe"/model/*.json model/
awk 'BEGIN { srand(5); n = split("photo.png half.png same.png wide.png palette.png rgba.png tall.png jpeg420.jpg lossy.webp", f, " ")
    for (i = 0; i < 64; i++) { k = 1 + i % 4; s = ""; m = ""; for (j = 0; j < k; j++) { s = s (j ? "," : "") "\"" f[1 + int(rand() * n)] "\""; m = m "<image>" }
        printf "{\"data_source\":\"math_exact_flexible\",\"prompt\":[{\"role\":\"user\",\"content\":\"%swhich colour?\"}],\"images\":[%s],\"reward_model\":{\"ground_truth\":\"1\"}}\n", m, s } }' >few.jsonl
"$hone" train "$recipe/grpo.yaml" model.path=model data.train_files=[few.jsonl] data.train_batch_size=32 data.max_prompt_length=120 data.max_response_length=64 \
    rollout.n=8 rollout.page=16 rollout.kv_tokens=2048 rollout.token_budget=56 rollout.max_batch=48 rollout.ignore_eos=true trainer.steps=4 trainer.val_every=0 \
    reward.scorer=math_exact_flexible trainer.run_dir=exact >log 2>&1
line=$(grep "largest difference of a log-prob" log)
echo "$line"
ok $([[ $line == *"log-prob 0, over"* ]] && [ "$(sed 's/.*over \([0-9]*\) tokens.*/\1/' <<<"$line")" -ge 50000 ]; echo $?) "50,000 tokens, difference 0: $line $(tail -1 log)"
sum() { grep -o "\"$1\":[^,}]*" exact/metrics.jsonl | awk -F: '{ s += $2 } END { printf "%d", s }'; }
ok $([ "$(sum rollout/preempted)" -gt 0 ] && [ "$(sum rollout/prefix_tokens)" -gt 0 ]; echo $?) "there are preemptions ($(sum rollout/preempted)) and prefix hits ($(sum rollout/prefix_tokens) tokens)"
cd "$root" || exit 1
for seed in ${VISION_SEEDS:-1 2 3}; do
    out=$(recipes/quickstart-vision/run --seed $seed 2>&1)
    ok $? "quickstart-vision, seed $seed: $(tail -1 <<<"$out")"
    grep "held-out accuracy" <<<"$out"
done
run=runs/quickstart-vision-${seed:-1}
again() { # the same training again; $1: the step behind which it is killed
    "$hone" train "$recipe/grpo.yaml" model.path="$run/model" data.train_files="[$run/questions.parquet]" data.val_files="[$run/held_out.parquet]" \
        trainer.run_dir="$tmp/killed" trainer.seed=${seed:-1} >>"$tmp/killed.log" 2>&1 & pid=$!
    while [ -n "$1" ] && kill -0 $pid 2>/dev/null && ! grep -q "^step *$1/" "$tmp/killed.log"; do sleep 0.2; done
    [ -n "$1" ] && kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
}
again 230; again 450; again
for r in "$run/grpo" "$tmp/killed"; do "$hone" export "$r" "$tmp/e$((++i))" >/dev/null 2>&1; done
ok $([ "$(grep -c "^step *600/" "$tmp/killed.log")" = 1 ] && cmp -s "$tmp/e1/model.safetensors" "$tmp/e2/model.safetensors"; echo $?) "killed twice and resumed: the same bytes ($(tail -1 "$tmp/killed.log"))"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
