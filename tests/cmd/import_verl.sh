#!/bin/bash
# import_verl.sh HONE - `hone import-verl`: the words that bash makes of scripts (asked of the bash of this machine),
# what becomes of verl's settings, and that nothing of a script is ever executed.
hone=$(readlink -f "$1")
data=$PWD/tests/data/verl_import
models=$PWD/tests/data
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }

# ---- words: a program that writes its arguments down stands in for python3; everything else a snippet calls is harmless.
mkdir mock
for p in basename dirname date nproc cat seq env nohup; do ln -s "$(command -v $p)" mock/$p; done
for p in mkdir tee; do printf '#!/bin/sh\n' >mock/$p; done
cat >mock/python3 <<'END'
#!/bin/bash
python3='["python3"'
for w; do
    w=${w//\\/\\\\} w=${w//\"/\\\"} w=${w//$'\n'/\\n} w=${w//$'\t'/\\t}
    python3+=", \"$w\""
done
echo "$python3]" >>"$LOG"
END
chmod +x mock/*
bash_words() { # SCRIPT: what bash launches
    : >log
    env -i PATH="$scratch/mock" HOME=/home/u LOG="$scratch/log" "$BASH" "$1" >/dev/null 2>&1 </dev/null
    cat log
}
n=0
while IFS= read -r -d '' snippet; do
    n=$((n + 1))
    printf '%s' "$snippet" >snippet.sh
    bash_words snippet.sh >want
    "$hone" import-verl snippet.sh HOME=/home/u --args >got 2>err
    cmp -s want got
    ok $? "snippet $n: $(head -c 200 snippet.sh) $(diff want got | head -6)"
done < <(awk 'BEGIN { RS = "###\n"; ORS = "\0" } { print }' "$data/snippets.txt")
[ $n -ge 60 ]
ok $? "only $n snippets"

# ---- nothing is executed
plants=0
echo 'touch planted' >planted_by.sh
while IFS= read -r line; do
    plants=$((plants + 1))
    printf '%s\n' "$line" 'python3 -m verl.trainer.main_ppo a.b=1' >evil.sh
    for how in --args '--out evil.yaml'; do "$hone" import-verl evil.sh $how >/dev/null 2>&1; done
    [ ! -e planted ]
    ok $? "executed: $line"
    rm -f planted
done <<'END'
x=$(touch planted)
touch planted
`touch planted`
echo "$(touch planted)"
eval "touch planted"
bash -c "touch planted"
exec touch planted
x=$(echo a; touch planted; echo b)
x=$(true && touch planted || echo b)
y=$((1 + $(touch planted; echo 1)))
a=(1 $(touch planted) 3)
x=${Z:-$(touch planted)}
f() { touch planted; }; f
for i in $(touch planted); do :; done
if touch planted; then :; fi
cat <<< "$(touch planted)"
x=$(cat <(touch planted))
echo hi > planted
echo hi | tee planted
: > planted
python3 -c "open('planted', 'w')"
x=$(python3 -c "open('planted', 'w')")
trap 'touch planted' EXIT
source <(echo touch planted)
. ./planted_by.sh
printf x >> planted
dd if=/dev/zero of=planted count=1
env touch planted
command touch planted
a[$(touch planted)]=1
exec 3> planted
[ -n "$(touch planted)" ] && :
case $(touch planted) in *) ;; esac
END
[ $plants -ge 30 ]
ok $? "only $plants commands planted"

# ---- arguments of the script, hone's options behind them
printf 'python3 -m verl.trainer.main_ppo rollout=$1 "${@:2}"\n' >args.sh
out=$("$hone" import-verl args.sh --args -- sglang 'a.b=c d')
[ "$out" = '["python3", "-m", "verl.trainer.main_ppo", "rollout=sglang", "a.b=c d"]' ]
ok $? "script arguments: $out"
out=$("$hone" import-verl args.sh -- vllm --args)
[ "$out" = '["python3", "-m", "verl.trainer.main_ppo", "rollout=vllm"]' ]
ok $? "an option behind the script's arguments: $out"

# ---- what is unknown stops it, and says what to do
printf 'N=$(nvidia-smi -L | wc -l)\npython3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=$N\n' >unknown.sh
"$hone" import-verl unknown.sh >/dev/null 2>err
[ $? = 1 ] && grep -q 'unknown.sh:2: trainer.n_gpus_per_node=?: the ? is $(nvidia-smi -L | wc -l) (line 1).*NAME=VALUE' err
ok $? "an unknown value: $(cat err)"
"$hone" import-verl unknown.sh N=4 2>/dev/null | grep -q 'gpus_per_node: 4 '
ok $? "an unknown value that is given"

# ---- settings, one row each: what is on the left gives what is on the right
rows=0
while IFS= read -r row; do
    case $row in '#'* | '') continue ;; esac
    rows=$((rows + 1))
    want=${row#* => }
    python_words=()
    IFS=$'\x01' read -r -a python_words <<<"$(sed 's/ => .*//; s/ \([+~]*[a-z_]*\.[a-z0-9_.]*=\)/\x01\1/g' <<<"$row")"
    "$hone" import-verl "${python_words[@]}" --out out.yaml >report 2>err
    rc=$?
    case $want in
    'gone '*) sed -n '/^not needed/,/^$/p' report | grep -qE "^ +- +${want#gone } " ;;
    'no '*) sed -n '/^not supported/,/^$/p' report | grep -qE "^ +- +${want#no } " && grep -qF "# not supported: ${want#no }=" out.yaml ;;
    'note: '*) grep -qF "$want" report ;;
    *) grep -qE "^ *$(sed 's/[][\\.*+?|(){}^$"]/\\&/g' <<<"$want")( +#.*)?$" out.yaml ;;
    esac && [ $rc = 0 ]
    ok $? "$row: $(cat err) $(cat report)"
done <"$data/settings.txt"
[ $rows -ge 110 ]
ok $? "only $rows rows"

# ---- every setting appears once, in the configuration, the notes or the refusals
"$hone" import-verl "$data/01_plain.sh" HOME=/h --out plain.yaml >report 2>/dev/null
[ "$(grep -cE '^ +[0-9]+  ' report)" = 6 ]
ok $? "six settings: $(cat report)"

# ---- --strict
"$hone" import-verl never.heard.of=1 --strict --out strict.yaml >/dev/null 2>err
[ $? = 1 ] && [ ! -e strict.yaml ] && grep -q '1 settings are not supported' err
ok $? "--strict: $(cat err)"

# ---- Hydra's YAML, and lists of settings
printf 'defaults: [ppo_trainer, _self_]\ndata: {train_batch_size: 96, use_shm: false}\nactor_rollout_ref: {rollout: {n: 3, response_length: "${data.max_response_length}"}}\nsome: {switch: false}\n' >own.yaml
"$hone" import-verl own.yaml trainer.total_epochs=2 --strict --out o.yaml >/dev/null 2>err && grep -q 'n: 3 ' o.yaml && grep -q 'epochs: 2 ' o.yaml
ok $? "a YAML file: $(cat err)"
printf 'data:\n  train_batch_size: 96\n\nactor_rollout_ref:\n  rollout: {n: 3,\n    temperature: 0.5}\nbase: &b\n  x: 1\n' >lines.yaml
"$hone" import-verl lines.yaml --out o.yaml >report 2>err
for want in '2  data.train_batch_size' '5  actor_rollout_ref.rollout.n' '6  actor_rollout_ref.rollout.temperature' '8  base.x'; do
    grep -q "^ *$want " report
    ok $? "lines of a YAML file: $want: $(cat report)"
done
grep -q 'n: 3  *# line 5: actor_rollout_ref.rollout.n' o.yaml
ok $? "lines of a YAML file, in the configuration: $(cat o.yaml)"
printf -- '- data.train_batch_size=96\n- +actor_rollout_ref.rollout.n=3\n' >overrides.yaml
"$hone" import-verl overrides.yaml --out o.yaml >/dev/null 2>err && grep -q 'train_batch_size: 96 ' o.yaml && grep -q 'n: 3 ' o.yaml
ok $? "a list of settings in YAML: $(cat err)"
printf 'data.train_batch_size=96 \\\n  actor_rollout_ref.rollout.n=3\n' >list.txt
"$hone" import-verl list.txt --out o.yaml >/dev/null 2>err && grep -q 'train_batch_size: 96 ' o.yaml && grep -q 'n: 3 ' o.yaml
ok $? "a list of settings: $(cat err)"
printf 'python3 -m verl.trainer.main_ppo --config-path=. --config-name=own data.train_batch_size=32\n' >own.sh
"$hone" import-verl own.sh --out o.yaml >/dev/null 2>err && grep -q 'train_batch_size: 32 ' o.yaml && grep -q 'n: 3 ' o.yaml
ok $? "a configuration beside the script: $(cat err)"

# ---- several launches
printf 'for n in 1 2; do python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=$n; done\n' >two.sh
"$hone" import-verl two.sh >/dev/null 2>err
[ $? = 1 ] && grep -q 'launches 2 trainings: choose one with --launch N' err
ok $? "two launches: $(cat err)"
"$hone" import-verl two.sh --launch 2 2>/dev/null | grep -q ' n: 2 '
ok $? "--launch 2"

# ---- SFT
printf 'torchrun --standalone -m verl.trainer.fsdp_sft_trainer data.prompt_key=extra_info data.response_key=extra_info data.prompt_dict_keys=[question] +data.response_dict_keys=[answer] data.micro_batch_size_per_gpu=4 model.partial_pretrain=M optim.lr=1e-4 model.lora_rank=0 use_remove_padding=true\n' >sft.sh
"$hone" import-verl sft.sh --strict --out sft.yaml >/dev/null 2>err && grep -q 'prompt_key: extra_info.question ' sft.yaml && grep -q 'lr: 0.0001 ' sft.yaml
ok $? "an SFT script: $(cat err)"

# Its engines: what they are called is not what they mean.
sft_row() { # SETTINGS... => a line of the configuration, or "no KEY"
    local want=${*: -1}
    printf 'torchrun -m verl.trainer.sft_trainer model.path=M trainer.n_gpus_per_node=8 %s\n' "${*:1:$#-1}" >sft.sh
    "$hone" import-verl sft.sh --out sft.yaml >report 2>err && case $want in
        'no '*) grep -qF "# not supported: ${want#no }=" sft.yaml ;;
        *) grep -qF "  $want " sft.yaml ;;
        esac
    ok $? "SFT: $*: $(cat err) $(cat sft.yaml)"
}
sft_row engine=megatron engine.override_transformer_config.recompute_granularity=full 'recompute: full'
sft_row engine=megatron engine.override_transformer_config.recompute_granularity=null engine.override_transformer_config.moe_aux_loss_coeff=0.01 'no engine.override_transformer_config.moe_aux_loss_coeff'
sft_row engine=megatron engine.pipeline_model_parallel_size=2 engine.override_transformer_config.num_layers_in_last_pipeline_stage=3 'last_layers: 3'
sft_row engine=veomni engine.ulysses_parallel_size=2 'cp: 2'
sft_row engine=veomni engine.expert_parallel_size=4 'ep: 4'
sft_row engine=automodel engine.tp_size=2 engine.cp_size=2 engine.ep_size=2 'dp: 2'
sft_row engine=automodel engine.activation_checkpointing=True 'recompute: full'
sft_row engine=automodel optim=automodel optim.optimizer=FusedAdam optim.optimizer_impl=transformer_engine.pytorch.optimizers.fused_adam optim.master_weights=true optim.store_param_remainders=true optim.exp_avg_dtype=bf16 optim.exp_avg_sq_dtype=bf16 optim.eps=1e-9 'moments: bf16'
! grep -q '# not supported' sft.yaml && grep -q 'eps: 1e-09\|eps: 1e-9' sft.yaml
ok $? "the optimizer of automodel: $(cat sft.yaml)"
sft_row engine=automodel optim.init_lr_ratio=0.1 optim.lr_warmup_steps_ratio=0.1 'no optim.init_lr_ratio'
sft_row data.multiturn.enable=true data.multiturn.messages_key=talk 'messages_key: talk'
sft_row data.multiturn.messages_key=talk data.multiturn.tools_key=tls 'tools_key: tls'
sft_row model.lora_adapter_path=/a/b 'adapter: /a/b'

# ---- another method's trainer is named, verl's own and DAPO's are not
launch() { printf 'python3 -m %s algorithm.adv_estimator=grpo %s\n' "$1" "$2" >launch.sh; "$hone" import-verl launch.sh --out launch.yaml >report 2>err; }
for module in recipe.sppo.main_sppo recipe.flowrl.main_flowrl verl.experimental.one_step_off_policy.main_ppo verl.experimental.fully_async_policy.fully_async_main recipe.entropy.main_entropy; do
    launch $module && sed -n '/^not supported/,/^$/p' report | grep -q "$module" && grep -q "^# not supported: $module: " launch.yaml && grep -q '1 settings are not supported' report
    ok $? "$module: $(cat err report)"
    "$hone" import-verl launch.sh --strict >/dev/null 2>err
    [ $? = 1 ]
    ok $? "$module --strict: $(cat err)"
done
printf 'python3 recipe/sppo/main_sppo.py algorithm.adv_estimator=grpo\n' >launch.sh
"$hone" import-verl launch.sh --out launch.yaml >report 2>err && grep -q '^# not supported: recipe/sppo/main_sppo.py: ' launch.yaml
ok $? "a trainer by its file: $(cat err report)"
for module in verl.trainer.main_ppo verl.trainer.main_ppo_sync recipe.dapo.main_dapo verl.trainer.sft_trainer verl.trainer.fsdp_sft_trainer; do
    launch $module && ! grep -q "$module" report
    ok $? "$module: $(cat err report)"
done
launch verl.experimental.one_step_off_policy.main_ppo 'algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=3.0'
sed -n '/with a change/,/^$/p' report | grep -q 'rollout_is .*-> algo.tis: answers are fresh here' && grep -q 'tis_cap: 3.0 ' launch.yaml
ok $? "the correction of stale answers: $(cat err report)"
launch verl.experimental.one_step_off_policy.main_ppo 'algorithm.rollout_correction.rollout_is=null algorithm.rollout_correction.rollout_is_threshold=null' && grep -q ': 1 settings are not supported' report
ok $? "and without one: $(cat err report)"

# ---- without a teacher it would be another run: an error, and no file
rm -f launch.yaml
launch verl.trainer.main_ppo distillation.enabled=True
[ $? = 1 ] && [ ! -e launch.yaml ] && grep -q 'distillation.enabled=True is not supported.*distillation.enabled=False' err
ok $? "distillation: $(cat err)"
"$hone" import-verl launch.sh distillation.enabled=False --out launch.yaml >/dev/null 2>err && [ -e launch.yaml ]
ok $? "and without: $(cat err)"

# ---- a family that hone does not run, by its config.json: it counts
echo '{"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}' >oss.json
"$hone" import-verl actor_rollout_ref.rollout.n=2 --model oss.json --out oss.yaml >report 2>err && grep -q '^# not supported: --model: .*GptOssForCausalLM' oss.yaml && grep -q ': 1 settings are not supported' report
ok $? "a family by its config.json: $(cat err report)"

# ---- a folder to go on from is the model to start from
mkdir -p ckpt/global_step_10
for order in 'trainer.resume_from_path=ckpt/global_step_10 actor_rollout_ref.model.path=Org/M' 'actor_rollout_ref.model.path=Org/M trainer.resume_from_path=ckpt/global_step_10'; do
    "$hone" import-verl $order trainer.resume_mode=resume_path --strict --out from.yaml >report 2>err && grep -q 'path: ckpt/global_step_10 ' from.yaml && sed -n '/with a change/,/^$/p' report | grep -q 'resume_from_path .*-> model.path: training starts from the model saved there'
    ok $? "$order: $(cat err report)"
done
"$hone" import-verl trainer.resume_from_path=ckpt/global_step_10 trainer.resume_mode=auto actor_rollout_ref.model.path=Org/M --strict --out from.yaml >report 2>err && grep -q 'path: Org/M ' from.yaml
ok $? "a folder that verl would not read: $(cat err report)"

# ---- what Megatron makes of a null expert_tensor_parallel_size is planned for
printf 'python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=null actor_rollout_ref.rollout.tensor_model_parallel_size=4 trainer.nnodes=2\n' >etp.sh
"$hone" import-verl etp.sh --model "$models/configs/Qwen3-30B-A3B.json" --out etp.yaml >report 2>err && grep -q 'note: .*null.*grid.etp is 4' report
ok $? "a null expert_tensor_parallel_size: $(cat err) $(grep note report)"
"$hone" plan "$models/configs/Qwen3-30B-A3B.json" --recipe etp.yaml --cluster H100x16 >out 2>err
grep -q '^tp 4, pp 1, ep 1, etp 4, ' out && grep -q 'expert dp 4;' out
ok $? "it is planned for: $(cat err) $(head -5 out)"

megatron=actor_rollout_ref.actor.megatron
fold=("$megatron.tensor_model_parallel_size=8" "$megatron.expert_model_parallel_size=8" trainer.n_gpus_per_node=8)
"$hone" import-verl "${fold[@]}" --model "$models/configs/Qwen3-30B-A3B.json" --out fold.yaml >report 2>err
[ $? = 1 ] && [ ! -e fold.yaml ] && grep -q "tp = 8 to Megatron; with ep 8 .*: add $megatron.expert_tensor_parallel_size=1" err
ok $? "experts that cannot be folded: $(cat err)"
"$hone" import-verl "${fold[@]}" "$megatron.expert_tensor_parallel_size=1" --model "$models/configs/Qwen3-30B-A3B.json" --out fold.yaml >report 2>err && grep -q 'etp: 1 ' fold.yaml
ok $? "and with the remedy: $(cat err)"

# ---- what was made is what hone takes: checked with files that are there, and planned
"$hone" random "$models/../../recipes/quickstart/model" model >/dev/null
for a in 1 2 3 4 5 6 7 8; do echo "{\"question\": \"$a+1\", \"answer\": \"#### $((a + 1))\"}"; done >raw.jsonl
"$hone" data gsm8k --in raw.jsonl --out q.parquet --instruction '{question}' >/dev/null 2>&1
cat >run.sh <<'END'
set -x
MODEL=${MODEL:-model}
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=q.parquet data.val_files=q.parquet \
    data.train_batch_size=4 data.max_prompt_length=32 data.max_response_length=8 \
    actor_rollout_ref.model.path=$MODEL \
    actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=4 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.n=2 \
    trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.save_freq=-1 trainer.test_freq=2 trainer.total_epochs=1 $@
END
"$hone" import-verl run.sh --strict --out run.yaml -- trainer.default_local_dir=run >/dev/null 2>err && "$hone" train run.yaml --check >out 2>err
ok $? "train --check: $(cat err)"
"$hone" train run.yaml trainer.steps=1 >out 2>err
ok $? "train: $(cat err)"
"$hone" plan --recipe run.yaml >out 2>err
ok $? "plan: $(cat err) $(tail -2 out)"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
