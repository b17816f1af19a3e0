#!/bin/bash
# ranks_slow.sh - a rank that is slow is named: in the metrics of every step, with its own seconds and the median's, and
# on the screen.  Over MPI, and over the GPU backend's transport on CPUs.
#   bash tests/cmd/ranks_slow.sh build/hone
. tests/cmd/train_common.bash
need_ranks
shims=$(dirname "$hone")/shims
make_model
make_sums 32
for ((a = 1; a <= 96; a++)); do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
# slow NAME RANKS RANK PROGRAM VERB KEY=VALUE...: that rank sleeps far longer than it computes
slow() {
    local name=$1 n=$2 rank=$3 program=$4 verb=$5
    shift 5
    $(under_ranks "$n") env LD_PRELOAD="$shims/slow.so" SLOW_RANK="$rank" SLOW_MS=100 "$program" "$verb" model.path="$work/model" \
        train.micro_tokens=64 trainer.threads=1 trainer.steps=3 trainer.tensorboard=false trainer.run_dir="$work/$name" "$@" >"$work/$name.log" 2>&1
}
named() { # named NAME KEY RANK: in two of the three steps at least, by seconds that are far above the median's
    local bad
    bad=$(sed -E 's/.*"timing_s\/slowest_'"$2"'":([0-9.e+-]+),"timing_s\/slowest_'"$2"'_rank":([0-9]+),"timing_s\/median_'"$2"'":([0-9.e+-]+).*/\1 \2 \3/' \
        "$work/$1/metrics.jsonl" | awk -v rank="$3" '$2 == rank && $1 >= 1.3 * $3 && $3 > 0 { n++ } END { exit n < 2 }'; echo $?)
    ok "$bad" "$1: rank $3 is not the slowest in $2: $(grep -o "\"timing_s/[a-z]*_$2[^,]*" "$work/$1/metrics.jsonl" | tr '\n' ' '; tail -2 "$work/$1.log")"
}
said() { # said NAME RANK
    grep -qE "^rank $2 \(on .+\) is slow: step [23] took [0-9.e-]+ s of its own in .*, [0-9.]+ times the median of [0-9] ranks" "$work/$1.log"
    ok $? "$1: nothing is said of rank $2: $(grep -a ' of its own ' "$work/$1.log"; tail -2 "$work/$1.log")"
    [ "$(grep -ac "rank $2 (on " "$work/$1/log.txt")" = 1 ]
    ok $? "$1: rank $2 is said $(grep -ac "rank $2 (on " "$work/$1/log.txt") times"
}
of_train="data.train_files=$work/sums.jsonl data.train_batch_size=16 rollout.n=8 data.max_prompt_length=16 data.max_response_length=16
    reward.library=$(dirname "$hone")/scorers/low_bytes.so train.use_kl_loss=true train.kl_loss_coef=0.1"
of_sft="data.train_files=$work/pairs.jsonl sft.batch_size=96 sft.max_length=32"
slow dp 4 2 "$hone" train $of_train
named dp update_actor 2
said dp 2
slow cut 4 1 "$hone" train grid.tp=2 grid.pp=2 rollout.grid.tp=2 $of_train
named cut update_actor 1
said cut 1
slow sft 3 0 "$hone" sft $of_sft
named sft step 0
said sft 0
if [ -x "$shims/gpu/hone" ]; then
    GPU_DIR=$work GPU_JITTER_US=0 slow queue 2 1 "$shims/gpu/hone" train trainer.share_gpu=true $of_train
    named queue update_actor 1
    said queue 1
fi
"$hone" train model.path="$work/model" train.micro_tokens=64 trainer.steps=1 trainer.tensorboard=false trainer.run_dir="$work/one" $of_train >"$work/one.log" 2>&1
ok $([ -s "$work/one/metrics.jsonl" ] && ! grep -q slowest "$work/one/metrics.jsonl"; echo $?) "one rank is the slowest of one: $(tail -1 "$work/one.log")"
the_end
