#!/bin/bash
# edges.sh - data from odd places and output to full ones: pipes, packed files that are larger than the memory, a device
# without an end, a disk without room.
#   bash tests/cmd/edges.sh build/hone
. tests/cmd/train_common.bash
make_model
make_sums 700
cd "$work" || exit 1
small="ulimit -v 100000" # KiB of address space: what is read as a whole does not fit

# Pipes: lines, packed lines, an array, a Parquet file.
"$hone" data stats sums.jsonl --json >want
gzip -k sums.jsonl
(echo '['; sed '$!s/$/,/' sums.jsonl; echo ']') >sums.json
for how in "cat sums.jsonl" "cat sums.jsonl.gz" "cat sums.json" "gzip -c sums.json"; do
    "$hone" data stats <($how) --json >got 2>err
    cmp -s want got
    ok $? "data stats <($how): $(cat err)"
done
"$hone" data show <(cat "$repo/tests/data/parquet/chat_gzip.parquet") --json >got 2>err
cmp -s got <("$hone" data show "$repo/tests/data/parquet/chat_gzip.parquet" --json)
ok $? "a Parquet file through a pipe: $(cat err)"
"$hone" data stats - --json <sums.jsonl.gz >got 2>err
cmp -s want got
ok $? "packed lines from standard input: $(cat err)"
"$hone" data stats nothing.jsonl >got 2>err
expect "a file that is not there" err 'nothing.jsonl: there is no such file'

# 130 MB of lines in a small file, in little memory.
line=$(head -c 65536 /dev/zero | tr '\0' x)
yes "{\"a\":1,\"text\":\"$line\"}" | head -2000 | gzip -1 >large.jsonl.gz
(eval "$small"; "$hone" data stats large.jsonl.gz --threads 2) >got 2>err
expect "130 MB packed, in 100 MB" got '^large.jsonl.gz: json lines, 2000 rows$'
if command -v zstd >/dev/null; then
    gzip -dc large.jsonl.gz | zstd -q >large.jsonl.zst
    (eval "$small"; "$hone" data stats large.jsonl.zst --threads 2) >got 2>err
    expect "130 MB packed by zstd" got '^large.jsonl.zst: json lines, 2000 rows$'
else
    skipped=$((skipped + 1))
fi
(eval "$small"; gzip -dc large.jsonl.gz | "$hone" data stats - --threads 2) >got 2>err
expect "130 MB from standard input" got 'json lines, 2000 rows$'
head -c 100000 large.jsonl.gz >cut.jsonl.gz
"$hone" data stats cut.jsonl.gz >got 2>err
[ $? = 1 ]; ok $? "a packed file that was cut short is read"
expect "a packed file that was cut short" err 'cut.jsonl.gz: the gzip stream is damaged or was cut short'

# Without an end.
for verb in "tokenize model --in" "generate model --in" "score model --in" "grade --in" "train" "data stats" "plan $repo/tests/data/configs/Qwen3-30B-A3B.json --recipe"; do
    timeout 100 "$hone" $verb /dev/zero >got 2>err
    rc=$?
    [ $rc = 1 ] && grep -qE 'longer than 256 MiB|more than 1 GiB|neither Parquet nor JSON|zero byte' err
    ok $? "hone $verb /dev/zero: exit code $rc, $(tail -1 err)"
done

# Without room.
for args in --help --version help "train --help" "train --list-options" version "inspect model" "data show sums.jsonl"; do
    "$hone" $args >/dev/full 2>err
    rc=$?
    [ $rc = 1 ] && grep -q 'cannot write' err
    ok $? "hone $args >/dev/full: exit code $rc, $(cat err)"
done
the_end
