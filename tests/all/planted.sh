#!/bin/bash
# planted.sh - every output of every operation is made wrong by 0.1 % in its largest entry (tests/op/planted.h), one at a time,
# and the operation's own test must fail.  A test that passes with a wrong operation proves nothing.
#   bash tests/all/planted.sh build/hone [DIR]
tests=$(dirname "$1")/tests/op
passed=0 failed=0 skipped=0
# which test covers which faults
table="
test_product: linear linear_dx linear_dw_dw linear_dw_db grouped grouped_dx grouped_dw headwise headwise_dw copy_heads tree_add
test_rows: copy zero embed embed_bwd rmsnorm rmsnorm_rstd rmsnorm_bwd_dx rmsnorm_bwd_dg swiglu swiglu_bwd_dgate swiglu_bwd_dup add rope_table rope sumsq adamw_w adamw_m adamw_v
test_attend: attend attend_lse attend_bwd_dq attend_bwd_dk attend_bwd_dv attend_kv kv_put kv_copy
test_moe: route_pick route_weight route_bwd moe_sort_from moe_sort_slot permute permute_bwd combine combine_bwd_drows combine_bwd_dw scatter_rows
test_head: logprob logprob_ent logprob_bwd_dh logprob_bwd_dw sample_id sample_lp sample_ent sample_kept"
listed=$(sed -nE 's/^ +F\(([a-z_]+),.*/\1/p; s/^ +\{ "([a-z_]+)", offsetof.*/\1/p' tests/op/planted.h | sort)
tabled=$(sed 's/^[a-z_]*://' <<<"$table" | tr ' ' '\n' | grep . | sort)
if [ "$listed" = "$tabled" ]; then passed=1; else
    failed=1
    echo "FAILED: the faults of tests/op/planted.h and this table differ:"
    diff <(echo "$listed") <(echo "$tabled")
fi
while IFS=: read -r test faults; do
    for fault in $faults; do
        out=$("$tests/$test" --plant "$fault" 2>&1)
        rc=$?
        # caught is: checks failed, or an operation's own front door refused what it was given
        if [ $rc != 0 ] && grep -qE 'FAILED|^hone: .*op' <<<"$out"; then passed=$((passed + 1)); else
            failed=$((failed + 1))
            echo "FAILED: $test does not notice a wrong $fault (exit code $rc: $(tail -1 <<<"$out"))"
        fi
    done
done < <(grep . <<<"$table")
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
