#!/bin/bash
# alone.sh - a sequence scored alone, and among 200 others in three orders, in batches of 100 to 4096 tokens, on 1, 2, 3
# and 7 threads: the same bytes, for every family.  (Gradients with every kind of recomputation:
# tests/model/test_exact.c.)
#   bash tests/all/alone.sh build/hone [DIR]
hone=$1
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
for m in tests/data/models/*/; do
    n=$(basename "$m")
    [ "$n" = qwen2_5_vl ] && continue
    vocab=$(grep -oE '"vocab_size": *[0-9]+' "$m/config.json" | grep -oE '[0-9]+$')
    awk -v v="$vocab" 'BEGIN { srand(11); for (i = 0; i < 201; i++) { len = 2 + int(rand() * 60); s = "";
        for (k = 0; k < len; k++) s = s (k ? "," : "") int(rand() * v); print "{\"tokens\":[" s "],\"id\":" i "}" } }' >"$work/in"
    "$hone" score "$m" --in "$work/in" --out "$work/want" --threads 1 --batch 4096 2>/dev/null
    [ "$(grep -c logprobs "$work/want")" = 201 ]
    ok $? "$n: not every sequence was scored"
    while read -r threads batch order; do
        case $order in reversed) tac "$work/in" ;; mixed) sort -t: -k2 "$work/in" ;; *) cat "$work/in" ;; esac >"$work/other"
        case $order in reversed) tac "$work/want" ;; mixed) paste "$work/in" "$work/want" | sort -t: -k2 | cut -f2 ;; *) cat "$work/want" ;; esac >"$work/wanted"
        "$hone" score "$m" --in "$work/other" --out "$work/got" --threads "$threads" --batch "$batch" 2>/dev/null
        cmp -s "$work/wanted" "$work/got"
        ok $? "$n: $order, $threads threads, batches of $batch tokens"
    done <<END
2 100 as-they-are
3 1000 reversed
7 333 mixed
1 128 reversed
END
    bad=0
    for i in 1 17 64 101 150 201; do
        sed -n "${i}p" "$work/in" | "$hone" score "$m" --in - --threads 2 2>/dev/null | cmp -s - <(sed -n "${i}p" "$work/want") || bad=$((bad + 1))
    done
    [ $bad = 0 ]
    ok $? "$n: $bad of 6 sequences alone differ"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
