#!/bin/bash
# ranks.sh - what cuts cost, by the clock, on two free cores: a training step of two ranks beside half of one rank's
# with one thread, taken in turns in one run (bench_ranks); gradients summed in order beside MPI's own sum; time of a
# run of four ranks outside its phases; balancing; the memory of 96 ranks and the slices of 16,384.  One line each:
# what, measured, bar.  Some three minutes; a loaded machine makes nonsense of it.
#   taskset -c 0,1 bash bench/ranks.sh [built]      on two cores; built: what is in build/ is taken as it is
cd "$(dirname "$0")/.." || exit 1
. tools/packages.sh
[ "$1" = built ] ||
    build build hone libhone_mpi.so bench/bench_ranks bench/bench_reduce_mpi bench/bench_pack bench/bench_sizes tests/train/test_many_ranks scorers/low_bytes.so || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpi() { timeout 100 mpirun --allow-run-as-root --oversubscribe --bind-to none "$@" 2>"$work/err"; } # unbound: on the cores that this script has
missed=0
line() { # line WHAT MEASURED BAR more|less
    awk -v what="$1" -v x="$2" -v bar="$3" -v way="$4" 'BEGIN { met = x != "" && (way == "less" ? x <= bar : x >= bar)
        printf "%-62s %8s   %s %-7s %s\n", what, x, way == "less" ? "<=" : ">=", bar, met ? "met" : "MISSED"; exit !met }' || missed=$((missed + 1))
}
on_two() { # on_two WHAT BAR GRID SEQUENCES LENGTH MICRO_TOKENS
    mpi -n 2 build/bench/bench_ranks bench/models/moe_29m.json "${@:3}" >"$work/cut"
    line "$1" "$(grep -oE '[0-9.]+ x an even share by the clock' "$work/cut" | awk '{ print $1 }')" "$2" less
    sed 's/^/    /; s/; losses.*//' "$work/cut"
}
echo "load $(awk '{ print $1 }' /proc/loadavg), $(nproc) cores, $(date -u +%F)"
on_two "dp=2, 8 x 512 tokens, x half of one rank's step" 1.15 dp=2 8 512 1024
on_two "pp=2 with 4 and 2 layers, 8 micro-batches of 512: 1.25 (m+p-1)/m" 1.406 pp=2@4,2 8 512 512 # the head is worth three layers
on_two "tp=2, 8 x 512 tokens" 1.35 tp=2 8 512 1024
on_two "ep=2, 8 x 512 tokens" 1.35 ep=2 8 512 1024
on_two "cp=2, one sequence of 4096 tokens" 1.25 cp=2 1 4096 4096
line "ordered reduce-scatter, 8 M, 2 ranks, x MPI's own rate" "$(mpi -n 2 build/bench/bench_reduce_mpi 8 | tee "$work/reduce" | grep -oE '[0-9.]+ x' | tail -1 | awk '{ print $1 }')" 1.0 more
cat "$work/reduce"

# a run of four ranks: everything between two steps belongs to a phase
build/hone random recipes/quickstart/model "$work/model" --seed 3 >/dev/null
for ((i = 0; i < 64; i++)); do
    echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"'$((i % 9))+$((i / 9))'"}],"reward_model":{"style":"rule","ground_truth":"'$((i % 9 + i / 9))'"}}'
done >"$work/sums.jsonl"
mpi -n 4 build/hone train model.path="$work/model" "data.train_files=[$work/sums.jsonl]" data.train_batch_size=16 rollout.n=8 data.max_prompt_length=16 \
    data.max_response_length=48 train.micro_tokens=2048 trainer.threads=1 trainer.device=cpu trainer.steps=8 trainer.tensorboard=false \
    reward.library=build/scorers/low_bytes.so trainer.run_dir="$work/run" >"$work/log"
line "a run of 4 ranks: % of a step outside its phases" "$(grep -oE '"timing_s/(other|step)":[0-9.e-]+' "$work/run/metrics.jsonl" |
    awk -F: '/other/ { o += $2 } /step/ { s += $2 } END { printf "%.2f", 100 * o / s }')" 3 less
line "balancing 8192 sequences over 64 ranks, ms" "$(build/bench/bench_pack | grep -E '64 ranks' | grep -oE '[0-9.]+ ms' | head -1 | awk '{ print $1 }')" 50 less
line "memory of 96 ranks of DeepSeek-V3 (tp 8, pp 12, ep 8), s" "$(build/bench/bench_sizes | grep -oE '[0-9.]+ s;' | awk '{ print $1 }')" 2 less
build/tests/train/test_many_ranks | grep 16,384
echo "$missed missed"
[ $missed = 0 ]
