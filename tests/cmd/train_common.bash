# train_common.bash - what the scripts about runs share: counting, a tiny random model, questions, and comparing two
# runs.
hone=$(realpath "$1")
repo=$PWD
passed=0 failed=0 skipped=0
export PMIX_MCA_gds=hash # a rank killed while it holds the lock of PMIx's shared memory would leave mpirun waiting for it
work=$(mktemp -d)
child=""
trap '[ -n "$child" ] && kill -9 $child 2>/dev/null; rm -rf "$work"' EXIT
ok() { # ok CONDITION-RESULT WHAT
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}
expect() { # expect WHAT FILE PATTERN
    grep -qE -- "$3" "$2"
    ok $? "$1: no '$3' in $(cat "$2")"
}
the_end() { echo "$passed passed, $failed failed, $skipped skipped"; [ $failed = 0 ]; exit; }

make_model() { "$hone" random "$repo/recipes/quickstart/model" "$work/model" --seed 3 >/dev/null || { echo "no model"; exit 1; }; }
make_sums() { # make_sums N
    local i a b
    for ((i = 0; i < $1; i++)); do
        a=$((i % 9)) b=$((i / 9))
        echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"'$a+$b'"}],"reward_model":{"style":"rule","ground_truth":"'$((a + b))'"}}'
    done >"$work/sums.jsonl"
}
train() { # train RUN KEY=VALUE...
    (start "$@")
}
start() { # the same in place of this shell: start RUN KEY=VALUE... & child=$!; behind $launch, where that is set
    local run=$1
    shift
    exec $launch "$hone" train model.path="$work/model" "data.train_files=[$work/sums.jsonl]" data.train_batch_size=4 rollout.n=4 data.max_prompt_length=16 \
        data.max_response_length=12 train.micro_tokens=128 train.lr=1e-3 trainer.threads=1 trainer.peak_tflops=0.1 \
        reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}
refused() { # refused RUN CODE PATTERN: a clear line and exit code 1, not a crash
    [ "$2" = 1 ] && tail -1 "$work/$1.log" | grep -q "^hone train: .*$3"
    ok $? "$1: exit code $2, $(tail -1 "$work/$1.log")"
}
lines() { [ -f "$1" ] && wc -l <"$1" || echo 0; }
wait_lines() { # wait_lines RUN N: until its metrics have N lines or the child is gone
    while [ "$(lines "$work/$1/metrics.jsonl")" -lt "$2" ] && kill -0 $child 2>/dev/null; do sleep 0.01; done
}
untimed() { sed -E 's/"(timing_s|timing_per_token_ms|perf)\/[^"]*":[^,}]*,?//g; s/,}$/}/' "$1/metrics.jsonl"; }
same_run() { # same_run A B STEP WHAT
    local f step
    step=$(printf 'checkpoints/step-%06d' "$3")
    for f in model/model.safetensors optimizer.safetensors state.json; do
        cmp -s "$work/$1/$step/$f" "$work/$2/$step/$f"
        ok $? "$4: $f differs"
    done
    [ "$(untimed "$work/$1")" = "$(untimed "$work/$2")" ]
    ok $? "$4: metrics differ"
    cmp -s "$work/$1/samples.jsonl" "$work/$2/samples.jsonl"
    ok $? "$4: the samples differ"
}
all_exact() { # all_exact RUN: every step says how many tokens it compared, and where it compared some they are equal
    local m="$work/$1/metrics.jsonl" steps
    steps=$(grep -c 'actor/loss' "$m")
    [ "$steps" -gt 0 ] && [ "$steps" = "$(grep -c '"exact/tokens":' "$m")" ] &&
        [ "$steps" = "$(grep -cE '"exact/max_abs_logprob_diff":0,"exact/tokens":[1-9]|"exact/tokens":0,' "$m")" ] &&
        grep -qE '"exact/tokens":[1-9]' "$m"
}
# Runs on several ranks; START N RUN KEY=VALUE... takes this shell's place.
need_ranks() {
    export ASAN_OPTIONS=detect_leaks=0 # what MPI keeps to its end is not a leak of ours
    command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
    [ -f "$(dirname "$hone")/libhone_mpi.so" ] || { echo "0 passed, 0 failed, 1 skipped (libhone_mpi.so was not built)"; exit 0; }
}
under_ranks() { [ "$1" = 1 ] || echo "mpirun --allow-run-as-root --oversubscribe -n $1"; }
column() { grep -oE "\"$2\":[^,}]*" "$work/$1/metrics.jsonl" | cut -d: -f2; } # column RUN NAME
kill_ranks() { # kill_ranks LINES START N RUN KEY=VALUE...: killed behind so many lines, until no rank is left
    local lines=$1 run=$4
    shift
    "$@" &
    child=$!
    wait_lines "$run" "$lines"
    kill -9 $child 2>/dev/null # the ranks see that mpirun is gone
    wait $child 2>/dev/null
    child=""
    while pgrep -f "trainer.run_dir=$work/$run" >/dev/null; do sleep 0.1; done
}
stop_ranks() { # stop_ranks LINES START N: told to stop, all ranks save and end
    "$2" "$3" told trainer.steps=100000 &
    child=$!
    wait_lines told "$1"
    kill -USR1 $child
    wait $child
    ok $? "told to stop: $(tail -3 "$work/told.log")"
    child=""
    expect "told to stop" "$work/told.log" 'told to stop after step [0-9]+ of 100000; saved'
}
