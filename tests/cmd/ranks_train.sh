#!/bin/bash
# ranks_train.sh - `hone train` under mpirun, on grids of its own for training and for sampling: questions are shared
# out, every rank ends with all answers, which are one rank's, and the sampler's log-probs are the trainer's.
#   bash tests/cmd/ranks_train.sh build/hone
. tests/cmd/train_common.bash
export ASAN_OPTIONS=detect_leaks=0 # what MPI keeps to its end is not a leak of ours
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
[ -f "$(dirname "$hone")/libhone_mpi.so" ] || { echo "0 passed, 0 failed, 1 skipped (libhone_mpi.so was not built)"; exit 0; }
make_model
make_sums 12
on() { (on_start "$@"); } # on N RUN KEY=VALUE...
on_start() { # in place of this shell
    local n=$1 run=$2 under=""
    shift 2
    [ "$n" = 1 ] || under="mpirun --allow-run-as-root --oversubscribe -n $n"
    exec $under "$hone" train model.path="$work/model" "data.train_files=[$work/sums.jsonl]" data.train_batch_size=4 rollout.n=4 data.max_prompt_length=16 \
        data.max_response_length=12 train.micro_tokens=128 train.lr=1e-3 trainer.threads=1 trainer.peak_tflops=0.1 trainer.device=cpu trainer.samples=16 \
        "data.val_files=[$work/sums.jsonl]" trainer.val_every=2 trainer.steps=3 trainer.tensorboard=false trainer.save_every=1 trainer.keep=9 \
        reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}
column() { grep -oE "\"$2\":[^,}]*" "$work/$1/metrics.jsonl" | cut -d: -f2; } # column RUN NAME
of_step() { grep "\"step\":$2," "$work/$1/samples.jsonl"; }

on 1 one
ok $? "one rank: $(tail -1 "$work/one.log")"
for grid in "3 rollout.max_batch=4 rollout.step_tokens=100 rollout.top_k=40 train.epochs=2" "4 grid.cp=2 rollout.grid.tp=2" "4 grid.ep=4 rollout.grid.dp=4 rollout.grid.ep=4 rollout.max_batch=8" \
    "8 grid.tp=2 grid.pp=2 grid.ep=4 rollout.grid.tp=2 rollout.grid.dp=2 rollout.grid.ep=4" \
    "2 grid.tp=2 rollout.top_p=0.9 train.mini_batch_size=2 train.use_kl_loss=true train.park_states=true train.weights=bf16 train.master=remainder train.moments=bf16" "2 rollout.grid.tp=2 train.use_kl_loss=true algo.advantage=remax train.park_weights=true"; do
    set -- $grid
    n=$1 run=$(tr ' =.' '___' <<<"on $grid") beside=one
    shift
    case $* in *top_* | *kl*) beside=one_$run; on 1 "$beside" $(printf '%s\n' "$@" | grep -v grid); ok $? "$beside: $(tail -1 "$work/$beside.log")" ;; esac
    on "$n" "$run" "$@"
    ok $? "$grid: $(tail -3 "$work/$run.log")"
    diff <(of_step $beside 1) <(of_step "$run" 1) >"$work/diff" && [ -s "$work/$run/samples.jsonl" ]
    ok $? "$grid: the first step's answers are not one rank's: $(head -3 "$work/diff")"
    for what in rollout/tokens critic/score/mean response_length/mean; do
        [ "$(column "$run" $what | head -1)" = "$(column $beside $what | head -1)" ]
        ok $? "$grid: $what is $(column "$run" $what | head -1), one rank's $(column $beside $what | head -1)"
    done
    case $* in *grid.[tpc]p=* | *rollout.top_*) ;; *) # all ranks are dp's
        awk -v n="$n" -v all="$(column $beside global_seqlen/mean | head -1)" -v mean="$(column "$run" global_seqlen/mean | head -1)" \
            -v least="$(column "$run" global_seqlen/balanced_min | head -1)" -v most="$(column "$run" global_seqlen/balanced_max | head -1)" \
            'BEGIN { d = n * mean - all; exit !(all > 0 && d * d < 1e-6 && least > 0 && least <= most && most < all) }'
        ok $? "$grid: tokens of a rank: $(grep -o '"global_seqlen/[^,}]*' "$work/$run/metrics.jsonl" | head -8 | tr '\n' ' ')" ;;
    esac
    [ "$(column "$run" val-core/score/mean | head -1)" = "$(column $beside val-core/score/mean | head -1)" ]
    ok $? "$grid: validation before the first step"
    all_exact "$run"
    ok $? "$grid: the sampler's log-probs are not the trainer's"
    [ "$(grep -c '^step ' "$work/$run.log")" = 3 ]
    ok $? "$grid: steps were told $(grep -c '^step ' "$work/$run.log") times"
done

# ---- killed, and gone on with, weights and states parked and saved from there: the bytes of the run that was not
four="trainer.steps=5 grid.tp=2 grid.pp=2 rollout.grid.tp=2 train.weights=bf16 train.master=remainder train.moments=bf16"
on 4 whole $four
on_start 4 killed $four &
child=$!
wait_lines killed 3
kill -9 $child 2>/dev/null # the ranks see that mpirun is gone
wait $child 2>/dev/null
child=""
while pgrep -f "trainer.run_dir=$work/killed" >/dev/null; do sleep 0.1; done
on 4 killed $four train.park_weights=true train.park_states=true trainer.save_buffer=5000
ok $? "gone on with: $(tail -1 "$work/killed.log")"
same_run whole killed 5 "killed on 4 ranks"
grep -q 'parked states [1-9].*parked weights [1-9]' "$work/killed/memory.txt"
ok $? "nothing was parked: $(head -1 "$work/killed/memory.txt")"
on_start 2 told trainer.steps=100000 &
child=$!
wait_lines told 3
kill -USR1 $child
wait $child
ok $? "told to stop: $(tail -3 "$work/told.log")"
child=""
expect "told to stop" "$work/told.log" 'told to stop after step [0-9]+ of 100000; saved'

# ---- what `hone plan --write` writes for ranks on this machine runs as it is, and plan and run stand side by side
for layout in "" "--tp 2 --rollout-tp 2"; do
    "$hone" plan "$work/model" --cluster thisx2 --prompts 4 --answers 4 --prompt-mean 5 --prompt-max 16 --mean 12 --max 12 $layout --data "$work/sums.jsonl" \
        --write "$work/plan.yaml" >"$work/plan.log" 2>&1
    ok $? "hone plan $layout: $(tail -3 "$work/plan.log")"
    rm -rf "$work/planned"
    mpirun --allow-run-as-root --oversubscribe -n 2 "$hone" train "$work/plan.yaml" trainer.run_dir="$work/planned" trainer.steps=10 >"$work/planned.log" 2>&1
    ok $? "a plan $layout runs: $(tail -3 "$work/planned.log")"
    expect "a plan $layout" "$work/planned.log" '^  all phases +predicted +[0-9.]+ s, measured'
done

# ---- refusals, said once
refused_on() { # refused_on PATTERN N KEY=VALUE...
    local pattern=$1 n=$2
    shift 2
    on "$n" no "$@"
    [ $? = 1 ] && [ "$(grep -c '^hone' "$work/no.log")" = 1 ] && grep -qE "^hone train: .*$pattern" "$work/no.log"
    ok $? "$*: $(cat "$work/no.log")"
}
refused_on 'nothing to pass from stage to stage' 2 rollout.grid.pp=2
refused_on 'experts over 4 ranks, but a replica has tp 2 x dp 1' 2 rollout.grid.tp=2 rollout.grid.ep=4
refused_on 'a replica of tp 4 x dp 1 does not divide the 2 ranks' 2 rollout.grid.tp=4
refused_on 'only 12 questions' 2 data.train_batch_size=13
the_end
