#!/bin/bash
# generate.sh - `hone generate` and `hone score` as a user meets them: what is generated scores the same bits for every
# family and every sampling option, whatever the batch; bad requests are errors for themselves alone.
#   bash tests/cmd/generate.sh build/hone [quick|normal|all]
hone=$1
passed=0 failed=0 skipped=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }

prompts() { # prompts VOCAB N: lines of random token ids, two in three with a common beginning
    awk -v v="$1" -v n="$2" 'BEGIN { srand(7); for (i = 0; i < n; i++) { len = 1 + int(rand() * 40); s = "";
        for (k = 0; k < len; k++) s = s (k ? "," : "") (i % 3 && k < 24 ? (k * 7 + 3) % v : int(rand() * v));
        print "{\"tokens\":[" s "]}" } }'
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
families="llama qwen2 qwen3 qwen3_moe qwen3_moe_plain mixtral deepseek_v3 moonlight deepseek_v3_yarn"
options=("--temperature 1" "--temperature 0.6" "--top-k 7" "--top-p 0.8 --temperature 1.4" "--min-p 0.05" "--greedy --top-p 0.5" "--min-tokens 6"
    "--leaves 32" "--temperature 10000 --leaves 16" "--min-tokens 4 --top-k 20 --top-p 0.9 --min-p 0.01 --temperature 1.3")
for f in $families; do
    m=tests/data/models/$f
    vocab=$(grep -oE '"vocab_size": *[0-9]+' $m/config.json | grep -oE '[0-9]+$')
    prompts "$vocab" 9 >"$work/in"
    for o in "${options[@]}"; do
        "$hone" generate $m --in "$work/in" --out "$work/gen" --n 2 --max-tokens 9 --seed 5 --threads 1 $o && "$hone" score $m --in "$work/gen" --out "$work/score" --threads 2 --batch 100 $o
        ok $? "$f $o: exit code"
        got=$(same_scores "$work/gen" "$work/score")
        [ "${got%% *}" = 0 ] && [ "$(wc -l <"$work/gen")" = 18 ]
        ok $? "$f $o: $got (lines that differ, lines, values)"
    done
    # the last options again: another order, few at once, a small cache, small chunks, another page
    cp "$work/gen" "$work/want"
    tac "$work/in" >"$work/back"
    "$hone" generate $m --in "$work/back" --out "$work/gen" --n 2 --max-tokens 9 --seed 5 --threads 2 --page 16 --kv-tokens 80 --max-rows 7 --max-batch 3 $o
    cmp -s <(sort "$work/want") <(sort "$work/gen")
    ok $? "$f: the same prompts in another order, preempted, give other answers"
done

# ---- order of the output, ids, requests' own settings
m=tests/data/models/llama
{
    echo '{"tokens":[5,6],"n":2,"id":"b"}'
    echo '{"tokens":[7],"id":"a","max_tokens":3}'
    echo '{"tokens":[5,6],"n":2,"id":"c","seed":9}'
    echo '{"tokens":[5,6],"n":2,"id":"c","seed":10}'
} >"$work/in"
"$hone" generate $m --in "$work/in" --out "$work/gen" --max-tokens 20 --ignore-eos --max-batch 2 --threads 1
[ "$(grep -oE '"id":"."' "$work/gen" | tr -d '\n')" = '"id":"b""id":"b""id":"a""id":"c""id":"c""id":"c""id":"c"' ]
ok $? "answers are not in the order of the input"
[ "$(sed -n 1p "$work/gen")" != "$(sed -n 2p "$work/gen")" ] && [ "$(sed -n 4p "$work/gen")" != "$(sed -n 6p "$work/gen")" ]
ok $? "two answers to one prompt, or two seeds, are the same"
sed -n 3p "$work/gen" | grep -q '"finish":"length"' && [ "$(sed -n 3p "$work/gen" | grep -oE '"tokens":\[[^]]*' | tr -cd , | wc -c)" = 3 ]
ok $? "max_tokens of a line was not kept"

# ---- bad requests are errors for themselves alone
context=$(grep -oE '"max_position_embeddings": *[0-9]+' $m/config.json | grep -oE '[0-9]+$')
long=$(awk -v n=$((context + 1)) 'BEGIN { for (i = 0; i < n; i++) printf "%s1", i ? "," : "" }')
{
    echo '{"tokens":[1,2,3]}'
    echo "{\"tokens\":[$long]}"
    echo '{"tokens":[]}'
    echo '{"tokens":[1,99999999]}'
    echo '{"tokens":[1,-1]}'
    echo '{"tokens":[1],"temperature":-3}'
    echo 'not json'
    echo '{"words":[1]}'
    echo '{"tokens":[4,5]}'
} >"$work/in"
for verb in generate score; do
    "$hone" $verb $m --in "$work/in" --out "$work/out" --threads 1 2>"$work/err"
    rc=$?
    lines=$([ $verb = score ] && echo 6 || echo 7) # a sampling option of a line means nothing to score
    [ $rc -lt 128 ] && [ $rc != 0 ] && [ "$(wc -l <"$work/out")" = 9 ] && [ "$(grep -c '"error"' "$work/out")" = "$lines" ]
    ok $? "$verb: exit code $rc, $(grep -c '"error"' "$work/out") errors in $(wc -l <"$work/out") lines"
    sed -n 2p "$work/out" | grep -q "context is $context"
    ok $? "$verb: too long a line: $(sed -n 2p "$work/out" | cut -c1-100)"
    sed -n 4p "$work/out" | grep -q '99999999'
    ok $? "$verb: a bad id: $(sed -n 4p "$work/out" | cut -c1-100)"
    sed -n 9p "$work/out" | grep -q 'logprobs'
    ok $? "$verb: a good line behind bad ones: $(sed -n 9p "$work/out" | cut -c1-100)"
done

# ---- temperature 0 is greedy, top-k -1 is all; an empty stop text is refused
echo '{"tokens":[1,2,3]}' >"$work/in"
"$hone" generate $m --in "$work/in" --out "$work/want" --greedy --max-tokens 9 --threads 1
"$hone" generate $m --in "$work/in" --out "$work/gen" --temperature 0 --top-k -1 --max-tokens 9 --threads 1
cmp -s "$work/want" "$work/gen"
ok $? "temperature 0 is not greedy"
"$hone" score $m --in "$work/gen" --out "$work/score" --temperature 0 --top-p 0.5 --threads 1
got=$(same_scores "$work/gen" "$work/score")
[ "${got%% *}" = 0 ]
ok $? "temperature 0 scores otherwise: $got"
"$hone" generate $m --in "$work/in" --out "$work/out" --stop '' --threads 1
[ $? = 1 ] && grep -q 'stop is empty' "$work/out"
ok $? "an empty stop text was taken: $(cut -c1-100 "$work/out")"
"$hone" train --list-options >/dev/full 2>"$work/err"
[ $? = 1 ] && grep -q 'cannot write' "$work/err"
ok $? "a full disk was not told: $(cat "$work/err")"

# ---- thousands of stop tokens kept away from the first tokens; all of them leave nothing to draw
vocab=$(grep -oE '"vocab_size": *[0-9]+' $m/config.json | grep -oE '[0-9]+$')
many=$(awk -v v="$vocab" 'BEGIN { for (i = 0; i < 20000; i++) printf "%s%d", i ? "," : "", 3 + i % (v - 3) }')
{
    echo "{\"tokens\":[1,2,3],\"stop_token_ids\":[$many],\"min_tokens\":5,\"max_tokens\":9,\"ignore_eos\":true}"
    echo "{\"tokens\":[1,2,3],\"stop_token_ids\":[0,1,2,$many],\"min_tokens\":5}"
    echo '{"tokens":[1,2,3],"max_tokens":3}'
} >"$work/in"
"$hone" generate $m --in "$work/in" --out "$work/out" --threads 1 2>"$work/err"
[ $? = 1 ] && [ "$(wc -l <"$work/out")" = 3 ] && [ "$(grep -c '"error"' "$work/out")" = 1 ] && sed -n 2p "$work/out" | grep -q 'every token'
ok $? "thousands of stop tokens: $(cut -c1-200 "$work/out" "$work/err")"
sed -n 1p "$work/out" | grep -oE '"tokens":\[[0-9,]*' | grep -qE '\[1,2,3(,[012]){5}'
ok $? "a stop token before min_tokens: $(sed -n 1p "$work/out" | cut -c1-100)"

# ---- a reader that goes away: a clean end, soon
for ((i = 0; i < 300; i++)); do echo '{"tokens":['$((i % 50 + 1))']}'; done >"$work/in"
timeout 60 bash -c "set -o pipefail; '$hone' generate $m --in '$work/in' --max-tokens 50 --ignore-eos --max-batch 4 --threads 1 2>'$work/err' | head -1 >/dev/null; exit \${PIPESTATUS[0]}"
rc=$?
[ $rc -lt 124 ]
ok $? "a broken pipe: exit code $rc"

# ---- the token budget cuts and marks
"$hone" generate $m --in "$work/in" --out "$work/out" --max-tokens 50 --ignore-eos --budget 500 --threads 1
[ "$(wc -l <"$work/out")" = 300 ] && grep -q '"finish":"budget"' "$work/out"
ok $? "the token budget"

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
