#!/bin/bash
# instructions.sh - how many instructions a decode step at batch 1 and 64, a training step and a megabyte of text take, of
# this tree beside COMMIT's: what may not grow where only code moves.  Counted by callgrind (so with AVX2), on one
# thread, which is the same on a loaded machine; a step is what 8 more steps take, divided by 8.
#   bench/instructions.sh COMMIT [BAR]         BAR: 1.01, the most that this tree may take; some ten minutes
cd "$(dirname "$0")/.." || exit 1
. tools/packages.sh
need_packages valgrind || exit 1
commit=$(git rev-parse --short "${1:?a commit}^{commit}") bar=${2:-1.01}
old=build-same/$commit
[ -d "$old" ] || git worktree add -q --detach "$old" "$commit" || exit 1
for tree in "$old" .; do
    (cd "$tree" && build build -DHONE_WERROR=ON hone bench_decode bench_train_step) || exit 1
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/hone random bench/models/moe_29m.json "$work/model" --seed 1 >/dev/null || exit 1
find src -name '*.c' | LC_ALL=C sort | xargs cat 2>/dev/null | head -c 1000000 | LC_ALL=C tr -d '\000-\011\013-\037\200-\377' |
    sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/{"text":"&"}/' >"$work/text" # this tree's, for both
: >"$work/none"
count() { # count FUNCTION PROGRAM...: instructions inside of FUNCTION ('': of the whole program); input as given
    local f=$work/$BASHPID # a redirection's would be another
    valgrind --tool=callgrind ${1:+--toggle-collect="$1"} --callgrind-out-file="$f.out" "${@:2}" 2>"$f.err" >/dev/null
    sed -n 's/.*Collected : //p' "$f.err"
}
decode() { # decode TREE BATCH
    local a b
    a=$(echo "decode $2 32 4" | count engine_run "$1/build/bench/bench_decode" "$work/model" 1 "$2" 128)
    b=$(echo "decode $2 32 12" | count engine_run "$1/build/bench/bench_decode" "$work/model" 1 "$2" 128)
    echo $(((b - a) / 8))
}
train() { echo | count policy_update "$1/build/bench/bench_train_step" "$work/model" 2 128 1; }
tokenize() {
    local a b
    a=$(count "" "$1/build/hone" tokenize $tokenizer --in "$work/none" --threads 1)
    b=$(count "" "$1/build/hone" tokenize $tokenizer --in "$work/text" --threads 1)
    echo $((b - a))
}
tokenizer=tests/data/tokenizers/llama3
missed=0
row() { # row WHAT FUNCTION ARGUMENTS...
    "$2" "$old" "${@:3}" >"$work/a" &
    "$2" . "${@:3}" >"$work/b"
    wait
    awk -v what="$1" -v a="$(cat "$work/a")" -v b="$(cat "$work/b")" -v bar="$bar" 'BEGIN {
        bad = !(a > 0) || !(b > 0) || b > bar * a
        printf "%-44s %15.0f %15.0f   %.4f%s\n", what, a, b, (a > 0 ? b / a : 0), (bad ? "  MISSED" : ""); exit bad }' || missed=$((missed + 1))
}
printf '%-44s %15s %15s   of %s\n' "instructions of" "$commit" "this tree" "$commit"
row "a decode step, batch 1 (29 M, experts)" decode 1
row "a decode step, batch 64" decode 64
row "a training step of 2 x 128 tokens" train
row "a megabyte of text to tokens" tokenize
exit $((missed > 0))
