#!/bin/bash
# ranks_memory.sh - the memory of every rank: what `--memory N` counts, without ranks, is what N ranks take, arena by
# arena, to the byte; kinds of ranks are those whose bytes are equal; 16,384 ranks.
#   bash tests/cmd/ranks_memory.sh build/hone [all]
. tests/cmd/train_common.bash
export ASAN_OPTIONS=detect_leaks=0
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
[ -f "$(dirname "$hone")/libhone_mpi.so" ] || { echo "0 passed, 0 failed, 1 skipped (libhone_mpi.so was not built)"; exit 0; }
make_model
for a in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
make_sums 8
of_sft="sft model.path=$work/model data.train_files=$work/pairs.jsonl sft.batch_size=8 sft.max_length=32 train.micro_tokens=64 trainer.steps=1"
of_train="train model.path=$work/model data.train_files=$work/sums.jsonl data.train_batch_size=4 rollout.n=2 data.max_prompt_length=16
    data.max_response_length=8 train.micro_tokens=64 trainer.steps=1 reward.library=$(dirname "$hone")/scorers/low_bytes.so"
takes() { # takes VERB N KEY=VALUE...
    local run=$1.$2.$passed.$failed what="of_$1" n=$2
    shift 2
    local words="${!what} trainer.device=cpu trainer.threads=1 trainer.tensorboard=false trainer.run_dir=$work/$run $*"
    "$hone" $words --memory "$n" --all-ranks 2>"$work/err" | grep -a '^rank ' >"$work/planned"
    [ ! -e "$work/$run" ] && [ "$(wc -l <"$work/planned")" = "$n" ]
    ok $? "$* counted for $n ranks: $(cat "$work/err")"
    mpirun --allow-run-as-root --oversubscribe -n "$n" "$hone" $words >"$work/log" 2>&1
    cmp -s "$work/planned" "$work/$run/memory.txt"
    ok $? "$* on $n ranks: $(tail -1 "$work/log"; diff "$work/planned" "$work/$run/memory.txt" | head -4)"
}
# kinds VERB N KEY=VALUE...: a line for each kind of rank, and how many there are, is what a line for each rank comes to
kinds() {
    local what="of_$1" n=$2
    shift 2
    local words="${!what} trainer.device=cpu trainer.threads=1 trainer.run_dir=$work/none $*"
    "$hone" $words --memory "$n" 2>&1 | sed -nE 's/^([0-9]+) ranks?, [^:]*: /\1 /p' | sort >"$work/kinds"
    "$hone" $words --memory "$n" --all-ranks 2>&1 | sed -nE 's/^rank [^:]*: //p' | sort | uniq -c | sed 's/^ *//' | sort >"$work/each"
    [ -s "$work/kinds" ] && cmp -s "$work/kinds" "$work/each"
    ok $? "$* for $n ranks: $(diff "$work/kinds" "$work/each" | head -4)"
}
takes sft 1
takes sft 4 grid.tp=2
takes sft 4 grid.pp=2 grid.vpp=2 train.recompute=full
takes sft 8 grid.tp=2 grid.pp=2 grid.ep=4
takes train 3
takes train 4 grid.tp=2 grid.pp=2 rollout.grid.tp=2
takes train 2 grid.cp=2 train.use_kl_loss=true train.kl_loss_coef=0.1
takes train 4 grid.tp=2 grid.pp=2 rollout.grid.tp=2 train.park_weights=true train.park_states=true
takes train 2 grid.tp=2 train.park_weights=true train.use_kl_loss=true rollout.kv_tokens=200000 # the cache is more than an update takes
# ---- kinds of ranks
kinds sft 12 grid.tp=2
kinds sft 24 grid.tp=2 grid.pp=2 grid.ep=4
kinds sft 16 grid.tp=4 grid.pp=2 grid.ep=4 grid.etp=2 train.recompute=full
kinds train 24 grid.tp=2 grid.pp=2 rollout.grid.tp=2 trainer.save_buffer=0
kinds train 24 grid.cp=3 grid.tp=2 train.offload_fraction=0.3 train.use_kl_loss=true
kinds train 32 grid.tp=2 grid.pp=4 rollout.grid.tp=8 train.park_weights=true train.park_states=true
kinds train 7
"$hone" $of_train trainer.device=cpu --all-ranks 2>&1 | grep -q '^hone train: --all-ranks goes with --memory N'
ok $? "--all-ranks alone: $("$hone" $of_train trainer.device=cpu --all-ranks 2>&1 | head -1)"
# ---- 671B on 16,384 ranks, in groups of up to 2048; no more than those are taken
mkdir -p "$work/v3"
cp tests/data/configs/DeepSeek-V3.json "$work/v3/config.json"
cp recipes/quickstart/model/tokenizer*.json "$work/v3"
for ((i = 0; i < 8192; i++)); do echo '{"prompt": "1+1"}'; done >"$work/many.jsonl"
many() {
    "$hone" train model.path="$work/v3" data.train_files="$work/many.jsonl" reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.device=cpu \
        data.train_batch_size=8192 data.max_prompt_length=2048 data.max_response_length=8192 train.mini_batch_size=2048 train.micro_tokens=10240 \
        rollout.kv_tokens=335552 rollout.grid.tp=8 rollout.grid.ep=32 rollout.grid.dp=4 trainer.run_dir="$work/none" "$@" 2>&1
}
for grid in "grid.tp=8 grid.pp=16 grid.vpp=2 grid.ep=64 grid.dp=128" "grid.tp=8 grid.ep=256 grid.dp=2048"; do
    many $grid --memory 16384 >"$work/log"
    [ $? = 0 ] && [ "$(sed -nE 's/^([0-9]+) ranks?, .* bytes$/\1/p' "$work/log" | paste -sd+ | bc)" = 16384 ] && [ "$(wc -l <"$work/log")" -lt 200 ]
    ok $? "16,384 ranks, $grid: $(tail -1 "$work/log")"
done
many --memory 16385 | grep -q 'memory .*16384'
ok $? "16,385 ranks are counted: $(many --memory 16385 | tail -1)"
said=$(OMPI_COMM_WORLD_SIZE=16385 OMPI_COMM_WORLD_RANK=0 "$hone" $of_train 2>&1 | tail -1)
[[ $said == *"started 16385 processes; 16384 are the most that one run can have" ]]
ok $? "16,385 ranks begin: $said"
# ---- hone plan of a file means the run of that file, defaults too
tr -s ' \n' '\n' <<<"${of_train#train }" | sed -n 's/=/: /p' >"$work/run.yaml"
planned=$("$hone" plan --recipe "$work/run.yaml" 2>&1 | sed -n 's/^activations  *//p')
counted=$("$hone" train "$work/run.yaml" trainer.device=cpu trainer.run_dir="$work/none" --memory 1 2>&1 | sed -n 's/.* activations \([0-9]*\),.*/\1/p' | awk '{ printf "%.2f", $1 / 1e6 }')
ok $([ -n "$counted" ] && [ "$planned" = "$counted" ]; echo $?) "activations of hone plan --recipe: $planned MB, of hone train: $counted"
# ---- held against the GPUs that the file is for
if [ -f "$(dirname "$hone")/libhone_cuda.so" ]; then
    against() { # against MEMORY HOST: what is said of two ranks on GPUs and a node with so much
        printf 'type: H100\nname: ours\ngpus: 2\nmemory: %s\nhost_memory: %s\n' "$1" "$2" >"$work/cluster.yaml"
        printf 'plan: {cluster: %s}\ntrain: {lr: 1e-3}\n' "$work/cluster.yaml" >"$work/run.yaml"
        "$hone" train "$work/run.yaml" ${of_train#train } trainer.device=cuda trainer.run_dir="$work/none" --check --memory 2 2>&1
        echo "code $?"
    }
    ok $(against 1GB 1GB | tr '\n' ' ' | grep -q 'checked: .* rank 1 .* fits ours: rank 0 takes most, .* code 0'; echo $?) "two ranks on GPUs of 1 GB: $(against 1GB 1GB | tail -2)"
    ok $(against 1MB 1GB | tr '\n' ' ' | grep -q 'rank 0 does not fit: .* of ours memory are needed, .*: short by .* code 1'; echo $?) "of 1 MB: $(against 1MB 1GB | tail -2)"
    ok $(against 1GB 1MB | tr '\n' ' ' | grep -q "a node's ranks need .* code 1"; echo $?) "in a node of 1 MB: $(against 1GB 1MB | tail -2)"
fi
if [ "$2" = all ]; then
    for on in "2" "3" "8" "2 grid.tp=2" "8 grid.tp=8" "2 grid.pp=2" "4 grid.pp=4" "2 grid.pp=2 grid.vpp=2" "2 grid.cp=2" "4 grid.cp=4" "4 grid.cp=2 grid.tp=2" \
        "2 grid.ep=2" "4 grid.ep=4" "8 grid.ep=4 grid.etp=2" "8 grid.tp=2 grid.pp=2 train.offload_fraction=0.3" "6 grid.cp=3 grid.tp=2 train.recompute=selective"; do
        takes sft $on
    done
fi
the_end
