#!/bin/bash
# page.sh - `hone page` in a real browser: every view of a whole, a live, a damaged run, of three overlaid, of 10^5 steps
# with 10^6 answers, and of hostile answers; what people do in it.  Skipped with a word where there is no Chromium with
# its driver.  PICTURES=DIR keeps a picture of every view.
#   bash tests/all/page.sh build/hone
command -v python3 >/dev/null && command -v chromium >/dev/null && command -v chromedriver >/dev/null ||
    { echo "0 passed, 0 failed, 1 skipped (python3, chromium and chromedriver: apt-get install chromium-driver)"; exit 0; }
. tests/cmd/train_common.bash
cd "$work" || exit 1
make_model
cp "$repo"/recipes/quickstart/model/tokenizer*.json model/
run() { python3 "$repo/tests/page_run.py" "$@" || { echo "no run"; exit 1; }; }
run whole 300 40 8 --vocab 300
sed -i "s#path: demo/model#path: $work/model#" whole/config.yaml
run faster 300 40 8 --offset 0.05 --lr 3.0e-6
run shorter 220 40 8 --offset -0.04 --lr 1.0e-5
run hostile 60 40 8 --hostile
run damaged 30 40 4
sed -i '5s/.\{60\}$//; 9s/^/garbage/' damaged/metrics.jsonl
sed -i '3s/.\{30\}$//; 7s/^.\{5\}//' damaged/samples.jsonl
run live 20 40 4
run large 100000 60 10
python3 "$repo/tests/page_look.py" "$hone" "${PICTURES:-$work}" </dev/null
rc=$?
counts=$(cat counts 2>/dev/null || echo "0 1")
passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
[ $rc = 0 ]; ok $? "the browser's part ended with $rc"
the_end
