#!/bin/bash
# doctor.sh - `hone doctor`: what it finds here, what it says of what is taken away, --json as a cluster, two ranks.
#   bash tests/cmd/doctor.sh build/hone
. tests/cmd/train_common.bash
cd "$work" || exit 1
"$hone" doctor >out 2>err
ok $? "doctor: $(cat err)"
[ ! -s err ] && ! grep -vqE '^((ok|slow|missing) +[a-zA-Z]|  )' out; ok $? "lines of another kind: $(cat err out)"
for what in processor cores instructions memory 'other load' 'open files' 'shared memory' MPI libcurl python3 GPU products disk; do
    expect "$what" out "^(ok|slow|missing) +$what +[^ ]"
done
[ -z "$(ls -A | grep -v -e '^out$' -e '^err$')" ]; ok $? "it left $(ls -A)"
(ulimit -n 200 && "$hone" doctor --quick) >out 2>err
expect "few files" out '^slow +open files +at most 200'
expect "what to do" out '^ +ulimit -n 4096$'
mkdir empty
PATH=$work/empty "$hone" doctor --quick >out 2>err
expect "no python3" out '^missing +python3 +none'
expect "no mpirun" out '^missing +MPI +no mpirun'
"$hone" doctor --dir "$work/nothing" >out 2>err
expect "no such disk" out '^missing +disk .*nothing: No such file'
"$hone" doctor --json >machine.json 2>err
ok $? "--json: $(cat err)"
python3 -c "import json; j = json.load(open('machine.json')); assert j['flops'] > 1e9 and j['storage'] > 0 and len(j['found']['machines'][0]['checks']) > 12"
ok $? "machine.json: $(head -c 300 machine.json)"
"$hone" plan "$repo/recipes/quickstart/model" --cluster machine.json --prompt-max 256 --max 128 --mean 64 >out 2>err
ok $? "a plan on it: $(tail -1 err)"
if command -v mpirun >/dev/null && [ -f "$(dirname "$hone")/libhone_mpi.so" ]; then
    export ASAN_OPTIONS=detect_leaks=0
    mpirun --allow-run-as-root --oversubscribe -n 2 "$hone" doctor --quick >out 2>err
    ok $? "two ranks: $(cat err)"
    expect "they speak" out '^2 ranks on 1 machine speak'
    [ "$(grep -c 'processor' out)" = 1 ]; ok $? "a machine is looked at once"
    ! grep -q $'\033' out; ok $? "colour through mpirun"
else skipped=$((skipped + 4)); fi
the_end
