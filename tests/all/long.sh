#!/bin/bash
# long.sh - 30,000 updates of a tiny model, which learns to the end: what is right changes twice, and each time it is
# learned anew.  An optimizer that stands still at update 6,734 or runs away at 13,900 (both have been) learns the first
# thing at most.
#   bash tests/all/long.sh build/hone
. tests/cmd/train_common.bash
cd "$work" || exit 1
mkdir config
sed 's/"hidden_size": 128/"hidden_size": 16/; s/"num_hidden_layers": 4/"num_hidden_layers": 1/; s/"head_dim": 32/"head_dim": 8/
    s/intermediate_size": [0-9]*/intermediate_size": 16/; s/"num_experts": 8/"num_experts": 4/' "$repo/recipes/quickstart/model/config.json" >config/config.json
cp "$repo"/recipes/quickstart/model/tok* config
"$hone" random config model --seed 5 >/dev/null || exit 1
# Ten updates a step, of one question each; the answers are asked for in this order.
for right in A z 0; do
    for ((i = 0; i < 10000; i++)); do echo '{"data_source":"byte","prompt":[{"role":"user","content":"?"}],"reward_model":{"ground_truth":"'$right'"}}'; done
done >questions.jsonl
"$hone" train model.path=model data.train_files=questions.jsonl data.shuffle=false data.train_batch_size=10 data.max_prompt_length=8 \
    data.max_response_length=1 rollout.n=8 rollout.ignore_eos=true train.mini_batch_size=1 train.micro_tokens=128 train.lr=1e-3 \
    "train.betas=[0.9,0.95]" train.entropy_coef=0.02 reward.library="$(dirname "$hone")/scorers/near_byte.so" trainer.steps=3000 trainer.run_dir=run \
    trainer.threads=1 trainer.peak_tflops=0.1 trainer.samples=0 trainer.tensorboard=false trainer.exact_every=100 >log 2>&1
ok $? "the run: $(tail -1 log)"
grep -q '"optimizer_step":30000' run/checkpoints/step-003000/state.json
ok $? "not 30,000 updates: $(cat run/checkpoints/*/state.json)"
# mean FROM TO: of the scores of those steps
mean() {
    awk -v a="$1" -v b="$2" 'match($0, /"step":[0-9]+/) { s = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
        s > a && s <= b && match($0, /"critic\/score\/mean":[^,}]+/) { sum += substr($0, RSTART + 20, RLENGTH - 20); n++ } END { printf "%.3f", n ? sum / n : -1 }' run/metrics.jsonl
}
at_least() { awk -v x="$1" -v y="$2" 'BEGIN { exit !(x >= y) }'; }
for third in 0 1000 2000; do
    first=$(mean $third $((third + 10))) last=$(mean $((third + 900)) $((third + 1000)))
    echo "updates $((third * 10 + 1)) to $((third * 10 + 10000)): score $first at first, $last at last"
    at_least "$last" 0.85
    ok $? "from update $((third * 10)) on it learns to $last only"
    at_least "$(awk -v a="$last" 'BEGIN { print a - 0.3 }')" "$first"
    ok $? "from update $((third * 10)) on there was nothing to learn: $first at first"
done
! grep -oE '"actor/(grad_norm|entropy)":[^,}]+' run/metrics.jsonl | grep -qE 'null|nan|inf'
ok $? "numbers that are not finite"
all_exact run
ok $? "log-probs are not the sampler's"
the_end
