#!/bin/bash
# replicas.sh - sampling by two replicas of one thread each beside one of them: tokens a second on the clock (of all
# answers, until the last is there; the launch is not in it), taken in turn; 1.7 x is wanted.  Two cores of your own are
# needed, or the figure says nothing.
#   taskset -c 0,1 bash bench/replicas.sh [ROUNDS]
hone=build/hone
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$hone" random recipes/quickstart/model "$work/model" --seed 3 >/dev/null || exit 1
awk 'BEGIN { srand(7); for (i = 0; i < 200; i++) { printf "{\"id\":%d,\"tokens\":[", i; for (j = 0; j < 12; j++) printf "%s%d", j ? "," : "", int(rand() * 256)
    print "]}" } }' >"$work/prompts.jsonl"
sample() { # the seconds that it takes
    "$@" "$hone" generate "$work/model" --device cpu --threads 1 --in "$work/prompts.jsonl" --n 8 --max-tokens 128 --ignore-eos --max-batch 64 --stats \
        --out "$work/out" 2>&1 | sed -nE 's/.* tokens in ([0-9.]+) s: .*/\1/p'
}
for ((i = 0; i < ${1:-3}; i++)); do
    one=$(sample env) two=$(sample mpirun --allow-run-as-root --bind-to none -n 2)
    awk -v a="$one" -v b="$two" 'BEGIN { n = 200 * 8 * 128; printf "one %.0f tokens/s, two replicas %.0f: %.2f x\n", n / a, n / b, a / b }'
done
