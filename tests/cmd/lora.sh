#!/bin/bash
# lora.sh - adapters as a user meets them: the reference's folders agree with peft's numbers, on every grid; what is
# sampled with one scores the same bits, alone and over ranks; folders that are wrong get a line.
#   bash tests/cmd/lora.sh build/hone
hone=$1
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
ranks() { mpirun --oversubscribe --bind-to none --allow-run-as-root -n 2 "$@"; }
data=tests/data/lora

for a in "$data"/*/; do
    "$hone" verify "$a" --guard >"$work/out" 2>&1 && grep -q '^6 passed, 0 failed' "$work/out"
    ok $? "$(basename "$a"): $(grep -E 'FAILED|hone verify' "$work/out" | head -3)"
done

# ---- the values of one rank, by any grid; what is sampled scores the same
lines() { # lines VOCAB
    awk -v v="$1" 'BEGIN { srand(3); for (i = 0; i < 6; i++) { s = ""; n = 3 + int(rand() * 30);
        for (k = 0; k < n; k++) s = s (k ? "," : "") int(rand() * v); print "{\"tokens\":[" s "]}" } }'
}
# same_scores GENERATED SCORED: how many lines' log-probs or entropies are not the same text (the shortest that names
# the float)
same_scores() {
    paste -d '\n' "$1" "$2" | awk '
        function list(line, name, out,   s) { if (!match(line, "\"" name "\":\\[[^]]*\\]")) return -1; s = substr(line, RSTART + length(name) + 4, RLENGTH - length(name) - 5); return split(s, out, ",") }
        NR % 2 { gen = $0; next }
        { lines++
          for (f = 0; f < 2; f++) { name = f ? "entropy" : "logprobs"; n = list(gen, name, a); m = list($0, name, b)
            if (n < 1 || m < n) { bad++; break }
            differ = 0; for (i = 1; i <= n; i++) { values++; if (a[i] != b[m - n + i]) differ = 1 }
            bad += differ } }
        END { print bad + 0, lines + 0, values + 0 }'
}
values() { grep -oE '"logprobs":\[[^]]*\]' "$1"; }
for pair in qwen3:qwen3_all_linear qwen3_moe:qwen3_moe_all_linear deepseek_v3:deepseek_v3_all mixtral:mixtral_per_expert; do
    m=tests/data/models/${pair%%:*} a=$data/${pair##*:}
    vocab=$(grep -oE '"vocab_size": *[0-9]+' "$m/config.json" | grep -oE '[0-9]+$')
    lines "$vocab" >"$work/in"
    "$hone" generate "$m" --adapter "$a" --in "$work/in" --out "$work/gen" --n 2 --max-tokens 12 --ignore-eos --threads 1
    ok $? "$pair: generate"
    "$hone" score "$m" --adapter "$a" --in "$work/gen" --out "$work/one" --threads 2 --leaves 8
    "$hone" score "$m" --in "$work/gen" --out "$work/base" --leaves 8
    [ "$(values "$work/one" | wc -l)" = 12 ] && ! cmp -s <(values "$work/one") <(values "$work/base")
    ok $? "$pair: the adapter changes nothing"
    [ "$(same_scores "$work/gen" "$work/one")" = "0 12 288" ]
    ok $? "$pair: log-probs of sampling and scoring differ"
    for g in tp=2 pp=2 cp=2 ep=2; do
        [ $g != ep=2 ] || grep -q expert "$m/config.json" || continue
        ranks "$hone" score "$m" --adapter "$a" --in "$work/gen" --out "$work/two" --threads 1 --leaves 8 --grid $g
        cmp -s <(values "$work/one") <(values "$work/two")
        ok $? "$pair, $g: bits of one rank"
    done
done
# tokens of all ranks come to every rank that has some of the experts
for pair in qwen3_moe:qwen3_moe_all_linear deepseek_v3:deepseek_v3_all; do
    m=tests/data/models/${pair%%:*} a=$data/${pair##*:}
    lines 90 >"$work/in"
    "$hone" generate "$m" --adapter "$a" --in "$work/in" --out "$work/gen" --max-tokens 9 --ignore-eos --leaves 8
    for g in ep=2 tp=2; do
        ranks "$hone" generate "$m" --adapter "$a" --in "$work/in" --out "$work/two" --max-tokens 9 --ignore-eos --threads 1 --leaves 8 --grid $g
        cmp -s "$work/gen" "$work/two"
        ok $? "$pair: generate on $g is generate"
    done
done
ranks "$hone" verify $data/deepseek_v3_all --threads 1 --grid tp=2 >"$work/out" 2>&1 && grep -q '^6 passed, 0 failed' "$work/out"
ok $? "gradients over tp"

# ---- folders that are wrong
wrong() { # wrong SED TEXT: adapter_config.json edited, what must be said
    rm -rf "$work/a"
    cp -r $data/qwen3_all_linear "$work/a"
    sed -i "$1" "$work/a/adapter_config.json"
    "$hone" verify "$work/a" --model tests/data/models/qwen3 >"$work/out" 2>&1
    [ $? = 1 ] && grep -qF -- "$2" "$work/out" && [ "$(grep -v computing "$work/out" | wc -l)" = 3 ]
    ok $? "$1: $(head -3 "$work/out")"
}
wrong 's/"r": 4/"r": 5/' 'says rank 5 of'
wrong 's/"r": 4/"r": 0/' '"r"'
wrong 's/"use_dora": false/"use_dora": true/' 'DoRA'
wrong 's/"peft_type": "LORA"/"peft_type": "IA3"/' 'peft_type is "IA3"'
wrong 's/"rank_pattern": {}/"rank_pattern": {"(": 3}/' 'no regular expression'
wrong 's/"bias": "none"/"bias": "all"/' 'bias is "all"'
wrong 's/^{/[/' 'adapter_config.json'
"$hone" verify "$work/a/" >"$work/out" 2>&1
ok $((! $?)) "a config that is none: $(cat "$work/out")"
cp $data/qwen3_all_linear/adapter_config.json "$work/a/"
"$hone" verify "$work/a" >"$work/out" 2>&1
grep -qF 'say --model DIR' "$work/out"
ok $? "a base that is not there: $(cat "$work/out")"
"$hone" verify "$work/a" --model tests/data/models/llama >"$work/out" 2>&1
grep -qE 'has shape|belongs to no linear map' "$work/out"
ok $? "another model: $(cat "$work/out")"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
