#!/bin/bash
# ends.sh - every option of train and sft that is a number at both ends of its range: the run works, or is refused in
# one line a setting; none ends by a signal.  Some of them; with all every one, and 400 draws of several at once.
#   bash tests/cmd/ends.sh build/hone [quick|normal|all]
. tests/cmd/train_common.bash
mode=${2:-quick}
make_model
make_sums 12
cd "$work" || exit 1
for a in 1 2 3 4; do echo '{"prompt":"'$a+1'","response":"'$((a + 1))'"}'; done >pairs.jsonl
own="model.path=model trainer.threads=1 trainer.peak_tflops=0.1 trainer.steps=1 trainer.run_dir=out train.micro_tokens=128"
train_own="$own data.train_files=sums.jsonl data.max_prompt_length=32 data.max_response_length=4 data.train_batch_size=2 rollout.n=2"
sft_own="$own data.train_files=pairs.jsonl sft.batch_size=2 sft.max_length=32"

# ends VERB: lines "NAME LEAST MOST" of --list-options' "a number from LEAST to MOST" and its other ways of saying it.
# Steps and answers are left out: that many are simply done.
ends() {
    "$hone" "$1" --list-options | awk '
        /^[a-z]/ { name = $1 }
        /^    (a|two) (whole )?numbers? (from|above|of)/ && name !~ /^(trainer.steps|rollout.n|rollout.val.n)$/ {
            lo = "1e-300"; hi = "1e300"
            if (match($0, /from [-0-9.e+]+/)) lo = substr($0, RSTART + 5, RLENGTH - 5)
            if (match($0, /at least [-0-9.e+]+/)) lo = substr($0, RSTART + 9, RLENGTH - 9)
            if (match($0, /(to|at most) [-0-9.e+]+/)) { hi = substr($0, RSTART, RLENGTH); sub(/.* /, "", hi) }
            if ($0 ~ /two/) { lo = "[" lo "," lo "]"; hi = "[" hi "," hi "]" }
            print name, lo, hi
        }'
}
# once VERB KEY=VALUE...
once() {
    local verb=$1 rc options=$1_own
    shift
    rm -rf out
    (ulimit -v 8000000; exec timeout 20 "$hone" $verb ${!options} "$@" >log 2>err </dev/null)
    rc=$?
    # one line, or one that counts them; what the machine has too little of is said before (124: much to do is no fault)
    case $rc in
    0 | 124) ;;
    1) [ "$(grep -vcE '^hone: (computing on|[0-9]+ of [0-9]+ threads)' err)" = $((1 + $(grep -oE '^hone [a-z]+: [0-9]+ settings cannot be had' err | grep -oE '[0-9]+' || echo 0))) ] ;;
    *) false ;;
    esac
    ok $? "hone $verb $*: exit code $rc, $(head -c 300 err)"
}
for verb in train sft; do
    ends $verb >"ends_$verb"
    [ "$(wc -l <"ends_$verb")" -gt 20 ]
    ok $? "hone $verb --list-options names $(wc -l <"ends_$verb") numbers"
    each=$([ "$mode" = all ] && echo 1 || echo 7) i=0
    while read -r name lo hi; do
        [ $((i++ % each)) = 0 ] || continue
        once $verb "$name=$lo"
        once $verb "$name=$hi"
    done <"ends_$verb"
done
if [ "$mode" = all ]; then
    RANDOM=1
    for ((k = 0; k < 400; k++)); do
        verb=train words=()
        [ $((k % 4)) = 0 ] && verb=sft
        while read -r name lo hi; do
            v=$lo
            [ $((RANDOM % 2)) = 0 ] && v=$hi
            words+=("$name=$v")
        done < <(shuf -n $((2 + RANDOM % 4)) --random-source=<(yes $k) "ends_$verb")
        once $verb "${words[@]}"
    done
fi
the_end
