#!/bin/bash
# leftovers.sh - what a killed convert leaves beside OUT is gone after the next one; what a living one is writing stays.
#   bash tests/cmd/leftovers.sh build/hone
. tests/cmd/train_common.bash
make_model
sleep 300 &
child=$!
out=$work/out
for name in "$out.tmp-$child" "$out.tmp-999999"; do # the number of a process that lives says nothing: it may be another's
    mkdir "$name"
    head -c 100000 /dev/zero >"$name/model.safetensors.tmp.7"
done
mkdir "$out.tmp-4" && exec 8<"$out.tmp-4" && flock 8
"$hone" convert "$work/model" "$out" --dtype bf16 >/dev/null 2>"$work/err"
ok $? "convert: $(cat "$work/err")"
[ "$(cd "$work" && echo out.tmp-*)" = out.tmp-4 ]
ok $? "beside the model there are $(cd "$work" && echo out*)"
exec 8<&-
"$hone" convert "$work/model" "$out" --dtype f32 --force >/dev/null 2>"$work/err"
[ $? = 0 ] && [ "$(cd "$work" && echo out*)" = out ]
ok $? "beside the model there are $(cd "$work" && echo out*)"

# A real kill, wherever it falls.
for ms in 002 005 010 020; do
    "$hone" convert "$work/model" "$out" --force >/dev/null 2>&1 &
    pid=$!
    sleep "0.$ms"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
done
"$hone" convert "$work/model" "$out" --force >/dev/null && [ "$(cd "$work" && echo out*)" = out ]
ok $? "after four kills there are $(cd "$work" && echo out*)"
the_end
