#!/bin/bash
# planted.sh - every output of every operation is made wrong by 0.1 % in its largest entry (tests/op/planted.h), one at
# a time, and the operation's own test must fail.  A test that passes with a wrong operation proves nothing.
#   bash tests/all/planted.sh build/hone [DIR]
tests=$(dirname "$1")/tests/op
passed=0 failed=0 skipped=0
# which test covers which faults
table="
test_product: linear linear_dx linear_dw.dw linear_dw.db grouped grouped_dx grouped_dw headwise headwise_dw copy_heads sum_heads tree_add
test_rows: copy zero normals widen embed embed_bwd rmsnorm.y rmsnorm.rstd rmsnorm_bwd.dx rmsnorm_bwd.dg swiglu swiglu_bwd.dgate swiglu_bwd.dup gelu gelu_bwd add scale add_row sum_rows rope_table rope sumsq adamw.w adamw.master adamw.m adamw.v
test_state: gate gate_bwd.da gate_bwd.dg plus_one conv conv_bwd.dx conv_bwd.dw unit.y unit.rho unit_bwd decay.g decay.beta decay_bwd.da decay_bwd.db decay_bwd.dA decay_bwd.ddt delta delta_bwd.q delta_bwd.k delta_bwd.v delta_bwd.g delta_bwd.beta norm_gate.y norm_gate.rho norm_gate_bwd.dx norm_gate_bwd.dz norm_gate_bwd.dw
test_attend: attend.o attend.lse attend_bwd.dq attend_bwd.dk attend_bwd.dv attend_all.o attend_all.lse attend_all_bwd.dq attend_all_bwd.dk attend_all_bwd.dv attend_kv kv_put kv_copy
test_moe: route.pick route.weight route_bwd moe_sort.from moe_sort.slot moe_sort.at permute permute_bwd combine combine_bwd.drows combine_bwd.dweight scatter_rows
test_head: logprob.lp logprob.ent logprob_part logprob_end.lp logprob_end.ent logprob_bwd.dh logprob_bwd.dw sample.id sample.lp sample.ent sample.kept logprob_rows.lp logprob_rows.ent sample_rows.id sample_rows.lp sample_rows.ent sample_rows.kept"
listed=$("$tests/test_rows" --plants | sort)
tabled=$(sed 's/^[a-z_]*://' <<<"$table" | tr ' ' '\n' | grep . | sort)
if [ "$listed" = "$tabled" ]; then passed=1; else
    failed=1
    echo "FAILED: the faults that there are (--plants) and this table differ:"
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
