#!/bin/bash
# refused.sh - memory that is refused, and files that shrink while they are mapped: every verb ends with one line and
# exit code 1, or as if nothing had been, but never by a signal, never late.  A preloaded library refuses the k-th call
# (tests/shim/failing.c).
#   bash tests/cmd/refused.sh build/hone [quick|normal|all]     all: every k; else some.  build-asan/hone: with the sanitizers
hone=$(realpath "$1")
mode=${2:-quick}
repo=$PWD
shims=$(dirname "$hone")/shims
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
export ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:abort_on_error=1 # who ends in the middle frees nothing
if nm "$hone" | grep -q __asan_init; then
    shimmed() { timeout 120 env "$1" "$shims/hone" "${@:2}" >stdout 2>stderr <input; }
else
    shimmed() { timeout 60 env LD_PRELOAD="$shims/failing.so" "$1" "$hone" "${@:2}" >stdout 2>stderr <input; } # (not timeout itself)
fi

cd "$work" || exit 1
"$hone" random "$repo/recipes/quickstart/model" model --seed 3 >/dev/null || exit 1
for a in 1 2 3 4; do echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"'$a+1'"}],"reward_model":{"style":"rule","ground_truth":"'$((a + 1))'"}}'; done >q.jsonl
for a in 1 2 3 4; do echo '{"prompt":"'$a+1'","response":"'$((a + 1))'"}'; done >pairs.jsonl
for a in 1 2 3 4; do echo '{"question": "'$a+1'", "answer": "#### '$((a + 1))'"}'; done >raw.jsonl
echo '{"data_source":"math_exact","solution_str":"so \\boxed{\\frac{1}{2}+\\sqrt{8}}","ground_truth":"\\frac{1+4\\sqrt{2}}{2}"}' >grade.jsonl
printf '{"tokens":[65,66]}\n{"text":"abc","stop":["x"]}\n{"messages":[{"role":"user","content":"hi"}]}\n' >in.jsonl
printf '{"text":"a b c"}\n{"text":"d"}\n' >texts.jsonl
printf '{"messages":[{"role":"user","content":"hi"}]}\n' >chats.jsonl
cat >run.yaml <<'END'
model: {path: model}
data: {train_files: q.jsonl, train_batch_size: 2, max_prompt_length: 32, max_response_length: 4}
rollout: {n: 2}
train: {mini_batch_size: 2, micro_tokens: 128, lr: 1.0e-3}
trainer: {steps: 1, run_dir: out, threads: 2, peak_tflops: 0.1, resume: never}
END
"$hone" train run.yaml trainer.run_dir=run >/dev/null 2>&1 || exit 1
"$hone" data gsm8k --in raw.jsonl --out q.parquet >/dev/null 2>&1 || exit 1

# Its own name, then the command line; what it writes is called out.
verbs=(
    "inspect --tensors model"
    "score model --in in.jsonl --threads 2"
    "score model --in in.jsonl --threads 1 --top-p 0.9 --min-tokens 0"
    "generate model --in in.jsonl --max-tokens 3 --threads 2 --n 2"
    "chat model --max-tokens 3 --threads 2"
    "eval model q.jsonl --max-tokens 3 --threads 2 --n 2 --out out"
    "eval model q.parquet --max-tokens 3 --threads 1 --scorer gsm8k"
    "convert model out --dtype bf16 --threads 2"
    "random $repo/recipes/quickstart/model out"
    "export run out"
    "train run.yaml"
    "sft model.path=model data.train_files=pairs.jsonl data.val_files=pairs.jsonl sft.batch_size=2 sft.max_length=32 train.micro_tokens=64 trainer.steps=1 trainer.threads=2 trainer.run_dir=out trainer.resume=never"
    "train --list-options"
    "show run"
    "compare run run"
    "tokenize model --in texts.jsonl --out out --threads 2"
    "template model --in chats.jsonl --out out"
    "grade --in grade.jsonl --out out --threads 2"
    "data show q.jsonl"
    "data stats q.jsonl q.parquet --model model"
    "data gsm8k --in raw.jsonl --out out.parquet"
    "data copy --in q.parquet --out out.parquet --codec snappy"
    "plan $repo/tests/data/configs/Qwen3-8B.json --cluster H100x8"
    "sync-plan model --from tp2 --to tp1"
    "verify --algos $repo/tests/data/verl/algos.json"
    "verify $repo/tests/data/models/llama --threads 1"
    "import-verl actor_rollout_ref.rollout.n=4 data.train_files=x.parquet"
    "version"
)

given() { cat stdout $([ -f out ] && echo out) | sed -E 's/[0-9.]+ s$/some s/' | cksum; } # what a verb said and wrote, times aside

# once HOW K VERB...: runs it with the K-th call refused
once() {
    local how=$1 k=$2 rc lines
    shift 2
    rm -rf out out.*
    shimmed "$how=$k" "$@"
    rc=$?
    lines=$(grep -vE '^hone: (computing on|[0-9]+ of [0-9]+ threads could)' stderr | grep -c '^hone') # (where it computes, and on how many)
    case $rc in
    0) [ -z "$same" ] || [ "$(given)" = "$same" ] ;;                              # it did without: then it made no difference
    1) [ "$lines" = 1 ] || grep -q 'FAILED.*Cannot allocate memory' stdout ;;     # (verify's report)
    *) false ;;
    esac && ! grep -qE 'AddressSanitizer|runtime error|terminate called' stderr
    ok $? "hone $*: $how=$k: exit code $rc, $(head -c 300 stderr)"
}
printf 'hi\nho\n' >input
for v in "${verbs[@]}"; do
    rm -rf out out.*
    shimmed SHIM_COUNT="$work/count" $v
    rc=$?
    n=$(cat count)
    same=$(given)
    rm -rf out out.*
    shimmed SHIM_AT=0 $v
    [ "$same" = "$(given)" ] || same="" # it tells of times
    [ $rc = 0 ] && [ "$n" -gt 0 ]
    ok $? "hone $v: exit code $rc without a refusal, $n calls: $(head -c 300 stderr)"
    echo "$n calls: hone ${v:0:100}"
    case $mode in all) step=1 ;; normal) step=$((n / 12 + 1)) ;; *) step=$((n / 4 + 1)) ;; esac
    for ((k = 1 + (step > 1 ? RANDOM % step : 0); k <= n; k += step)); do
        once SHIM_AT $k $v
        [ $((k % 2)) = 0 ] || once SHIM_FROM $k $v
    done
done

# ---- files that become shorter once they are mapped: the file is named
shrinks() { # shrinks FILE BYTES VERB...: FILE is cut to so many bytes
    local file=$1 keep=$2 rc
    shift 2
    rm -rf out out.*
    cp "$file" kept
    timeout 60 env LD_PRELOAD="$shims/failing.so" SHIM_SHRINK="$file" SHIM_KEEP=$keep "$hone" "$@" >stdout 2>stderr <input
    rc=$?
    cp kept "$file"
    sed -i '/^hone: computing on/d' stderr
    [ $rc = 1 ] && [ "$(wc -l <stderr)" = 1 ] && grep -qE "^hone.*$file: (cannot be read to its end: it became shorter|.*cut off)" stderr
    ok $? "$file cut to $keep bytes, hone $*: exit code $rc, $(head -c 300 stderr)"
}
if nm "$hone" | grep -q __asan_init; then skipped=$((skipped + 1)) # the library cannot be preloaded
else
    size=$(stat -c %s model/model.safetensors)
    for keep in 0 8192 $((size / 2)) $((size - 8192)); do
        shrinks model/model.safetensors $keep score model --in in.jsonl --threads 2
        shrinks model/model.safetensors $keep convert model out --threads 2
    done
    shrinks model/model.safetensors 8192 train run.yaml
    shrinks model/model.safetensors 0 inspect --tensors model
    awk 'BEGIN { for (i = 0; i < 20000; i++) print "{\"text\":\"line " i "\"}" }' >long.jsonl
    "$hone" data copy --in long.jsonl --out long.parquet --codec none >/dev/null 2>&1
    for f in long.jsonl long.parquet; do
        shrinks $f 0 data stats $f
        shrinks $f 8192 data stats $f
    done
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
