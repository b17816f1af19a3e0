#!/bin/bash
# lora_train.sh - an adapter trained as a user does it: from given answers and from sampled ones, on one rank and two;
# log-probs agree to the bit, memory is what was counted, a run that is killed goes on to the same bytes, what comes
# out is a folder that is read back, and merged.
#   bash tests/cmd/lora_train.sh build/hone
hone=$1
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
ranks() { mpirun --oversubscribe --bind-to none --allow-run-as-root -n 2 "$@"; }

"$hone" random recipes/quickstart/model/config.json "$work/model" --seed 1 >/dev/null
cp recipes/quickstart/model/tokenizer*.json "$work/model/"
for i in 0 1 2 3 4 5 6 7 8 9; do
    for k in 1 2 3 4; do
        p="[{\"role\":\"user\",\"content\":\"$i+$k+1\"}]"
        echo "{\"data_source\":\"openai/gsm8k\",\"prompt\":$p,\"reward_model\":{\"ground_truth\":\"$((i + k + 1))\"}}" >>"$work/q.jsonl"
        echo "{\"prompt\":$p,\"response\":\"#### $((i + k + 1))\"}" >>"$work/taught.jsonl"
    done
done
common=(model.path="$work/model" train.lora.rank=4 train.lr=1e-2 trainer.seed=1 trainer.device=cpu trainer.threads=1)
grpo=("${common[@]}" data.train_files="[$work/q.jsonl]" data.max_prompt_length=16 data.max_response_length=6
    data.train_batch_size=8 rollout.n=4 train.use_kl_loss=true train.entropy_coef=0.05 trainer.steps=4 trainer.val_every=0 reward.scorer=math_exact)
adapter() { cat "$1"/checkpoints/step-00000"$2"/adapter/*.safetensors "$1"/checkpoints/step-00000"$2"/adapter_optimizer.safetensors | sha256sum; }
train() { "$hone" train "${grpo[@]}" trainer.run_dir="$work/$1" "${@:2}" >"$work/out" 2>&1; }
exact() { grep -q 'largest difference of a log-prob 0, over' "$work/out"; }

"$hone" sft "${common[@]}" data.train_files="[$work/taught.jsonl]" sft.max_length=32 sft.batch_size=8 trainer.steps=12 trainer.run_dir="$work/sft" >"$work/out" 2>&1
ok $? "sft: $(tail -n 1 "$work/out")"
first=$(grep -oE 'loss [0-9.]+' "$work/out" | head -n 1) last=$(grep -oE 'loss [0-9.]+' "$work/out" | tail -n 1)
awk -v a="${first#* }" -v b="${last#* }" 'BEGIN { exit !(b < 0.8 * a) }'
ok $? "sft learns: $first, then $last"
"$hone" export "$work/sft" "$work/adapter" >/dev/null
ok $? "export"
"$hone" convert "$work/model" "$work/base" --merge "$work/adapter" --dtype f32
ok $? "convert --merge"
common[0]=model.path="$work/base" grpo[0]=model.path="$work/base"

train one trainer.save_every=2
ok $? "train: $(tail -n 1 "$work/out")"
exact
ok $? "sampler and trainer"
grep -oE '"actor/kl_loss":[^,]*' "$work/one/metrics.jsonl" >"$work/kl"
[ "$(head -n 1 "$work/kl")" = '"actor/kl_loss":0' ] && ! grep -q reference "$work/one/memory.txt"
ok $? "the KL to the model without the adapter is 0 at first, and costs no memory: $(head -n 1 "$work/kl")"
"$hone" train "${grpo[@]}" --memory 1 >"$work/plan" 2>&1
[ "$(grep -oE 'weights [0-9].*' "$work/plan" | tail -n 1)" = "$(grep -oE 'weights [0-9].*' "$work/one/memory.txt")" ]
ok $? "memory: $(grep -oE 'weights [0-9].*' "$work/plan")"

# ---- killed, and gone on from
train two trainer.steps=2 && train two trainer.steps=4 trainer.save_every=2
[ "$(adapter "$work/one" 4)" = "$(adapter "$work/two" 4)" ]
ok $? "four steps are two and two"
"$hone" train "${grpo[@]}" trainer.run_dir="$work/killed" trainer.save_every=1 >"$work/out" 2>&1 &
pid=$!
for _ in $(seq 600); do
    [ -d "$work/killed/checkpoints/step-000001" ] && break
    sleep 0.02
done
kill -9 $pid
wait $pid 2>/dev/null
train killed trainer.save_every=1
[ "$(adapter "$work/one" 4)" = "$(adapter "$work/killed" 4)" ]
ok $? "killed after a step: $(tail -n 1 "$work/out")"
grep -q '"the base model":"' "$work/one/checkpoints/step-000004/state.json"
ok $? "the base is named"

# ---- an adapter that is there; two ranks
"$hone" export "$work/one" "$work/trained" >/dev/null
echo '{"tokens":[5,6,7,8,9,10]}' >"$work/in"
"$hone" score "$work/base" --adapter "$work/trained" --in "$work/in" --out "$work/with" &&
    "$hone" score "$work/base" --in "$work/in" --out "$work/without" && ! cmp -s "$work/with" "$work/without"
ok $? "what was trained is read back"
grpo[1]=model.adapter="$work/trained"
for g in grid.tp=2 "grid.pp=2 rollout.grid.tp=2" "grid.ep=2 rollout.grid.tp=2 rollout.grid.ep=2" grid.cp=2 grid.dp=2; do
    rm -rf "$work/g"
    # shellcheck disable=SC2086
    ranks "$hone" train "${grpo[@]}" trainer.steps=2 $g rollout.sync_check=true trainer.run_dir="$work/g" >"$work/out" 2>&1 && exact
    ok $? "$g: $(grep -a '^hone' "$work/out" | head -n 2)"
    # shellcheck disable=SC2086
    "$hone" train "${grpo[@]}" trainer.steps=2 $g --memory 2 >"$work/plan" 2>&1
    cmp -s <(grep -oE 'weights [0-9].*' "$work/plan" | sort -u) <(grep -oE 'weights [0-9].*' "$work/g/memory.txt" | sort -u)
    ok $? "$g: memory"
done

# ---- what is refused
refused() { # refused TEXT SETTING...
    "$hone" train "${grpo[@]}" trainer.run_dir="$work/no" "${@:2}" >"$work/out" 2>&1
    [ $? != 0 ] && grep -qF -- "$1" "$work/out"
    ok $? "${*:2}: $(tail -n 1 "$work/out")"
}
refused 'leave train.lora.rank' train.lora.rank=4
grpo[1]=train.lora.rank=4
refused 'no linear map' train.lora.targets='[lm_head]'
refused 'no regular expression' train.lora.targets='[re:(]'
refused 'a pattern is name=number' train.lora.rank_pattern='[q_proj]'
refused 'train.lora.dropout' train.lora.dropout=0.1
refused 'train.park_weights' train.park_weights=true
refused 'has no adapter_config.json' train.lora.rank=0 model.adapter="$work/base"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
