#!/bin/bash
# eval.sh - `hone eval` as a user meets it: its numbers are worked out again from the answers that it wrote.
#   bash tests/cmd/eval.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 40
# A scorer whose verdict depends on the answer alone, and which says what it read: right or wrong; and a number that is
# no opinion.
cat >"$work/scorer.sh" <<'END'
while read -r line; do
    case "$line" in
    *'"solution_str":"'[A-Za-z0-9]*) echo '{"score": 1, "acc": true, "pred": "right", "n": '$((n += 1))'}' ;;
    *) echo '{"score": 0, "acc": false, "pred": "wrong", "n": '$((n += 1))'}' ;;
    esac
done
END
evaluate() { "$hone" eval "$work/model" "$work/sums.jsonl" --max-tokens 6 --threads 1 --workers 1 --out "$work/out.jsonl" "$@"; }
evaluate --n 6 --command "sh $work/scorer.sh" --json >"$work/json"
ok $? "exit code"
value() { grep -oE "\"$1\":\{\"value\":-?[0-9.]+" "$work/json" | grep -oE '[0-9.]+$'; }
# value, and what the lines say: mean, pass@1, 2, 4, 6, maj
wanted=$(grep -oE '"row":[0-9]+|"score":[0-9]' "$work/out.jsonl" | awk -F: '
    function none(c, k,   i, p) { p = 1; for (i = 0; i < k; i++) p *= n - c - i > 0 ? (n - c - i) / (n - i) : 0; return p }
    /row/ { row = $2; next }
    { if (!(row in seen)) { seen[row] = 1; first[row] = $2; q++ } right[row] += $2; sum += $2 }
    END { n = 6
        for (r in seen) { for (k = 1; k <= 6; k++) pass[k] += 1 - none(right[r], k)
            maj += right[r] * 2 > n ? 1 : right[r] * 2 < n ? 0 : first[r] }
        printf "%.4f %.4f %.4f %.4f %.4f %.4f", sum / q / n, pass[1] / q, pass[2] / q, pass[4] / q, pass[6] / q, maj / q }')
got=$(printf '%.4f %.4f %.4f %.4f %.4f %.4f' "$(value mean)" "$(value pass@1)" "$(value pass@2)" "$(value pass@4)" "$(value pass@6)" "$(value maj)")
[ "$got" = "$wanted" ]
ok $? "mean, pass@1 2 4 6, maj: $got, from the answers: $wanted"
[ "$(value mean)" != 0.000000 ] && [ "$(value pass@1)" != "$(value pass@6)" ]
ok $? "the questions are all alike: this test would see nothing"
[ "$(value pass)" = "$(value pass@6)" ] && [ "$(value acc)" = "$(value mean)" ]
ok $? "pass and acc"
cp "$work/json" "$work/before"
evaluate --n 6 --command "sh $work/scorer.sh" --json --max-batch 3 --threads 2 >"$work/json"
[ "$(sed 's/"seconds.*//' "$work/json")" = "$(sed 's/"seconds.*//' "$work/before")" ]
ok $? "another batch, another result"
evaluate --n 1 --scorer gsm8k >"$work/text"
ok $? "exit code"
grep -q '^40 questions, 1 answers each' "$work/text" && grep -qE '^  mean@1 +0\.[0-9]+   95 % \[0\.0000, 0\.[0-9]+\]$' "$work/text"
ok $? "$(cat "$work/text")"
evaluate --n 2 --command 'exit 1' >"$work/text"
grep -q '80 answers could not be judged' "$work/text"
ok $? "a scorer that fails: $(cat "$work/text")"
if command -v mpirun >/dev/null && [ -f "$(dirname "$hone")/libhone_mpi.so" ]; then # on four ranks: the answers and numbers of one
    mv "$work/out.jsonl" "$work/before.jsonl"
    export ASAN_OPTIONS=detect_leaks=0
    evaluate --n 2 --library "$(dirname "$hone")/scorers/low_bytes.so" --json | sed 's/"seconds.*//' >"$work/one"
    mv "$work/out.jsonl" "$work/one.jsonl"
    one=$hone hone="mpirun --allow-run-as-root --oversubscribe -n 4 $hone"
    for grid in tp=2,dp=2 dp=4,ep=4; do
        evaluate() { $hone eval "$work/model" "$work/sums.jsonl" --max-tokens 6 --threads 1 --workers 1 --out "$work/out.jsonl" "$@"; }
        evaluate --n 2 --library "$(dirname "$one")/scorers/low_bytes.so" --json --max-batch 8 --grid $grid 2>"$work/err" | sed 's/"seconds.*//' >"$work/many"
        cmp -s "$work/one" "$work/many" && cmp -s "$work/one.jsonl" "$work/out.jsonl"
        ok $? "eval on 4 ranks, $grid: $(cat "$work/err" "$work/one" "$work/many")"
    done
fi
the_end
