#!/bin/bash
# ranks_fail.sh - one of eight ranks is killed (-9) or stopped (-STOP) in every phase of `train` and `sft`: all ranks
# are gone in time, the terminal and the run's log name rank and phase, and the same command goes on, on fewer ranks
# too.  Then memory that is refused to one rank, a file that only one cannot read, numbers that are not finite on one, a
# disk that is full for one, and being told to end.
#   bash tests/all/ranks_fail.sh build/hone [short]
# The phase of a rank is the name of a thread of it (comm/watch.h).
. tests/cmd/train_common.bash
short=$2
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
[ -f "$(dirname "$hone")/libhone_mpi.so" ] || { echo "0 passed, 0 failed, 1 skipped (libhone_mpi.so was not built)"; exit 0; }
deadline=4 # of a stall; the rest is ours
make_model
make_sums 24
for a in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
common="model.path=$work/model train.lr=1e-3 trainer.threads=1 trainer.device=cpu trainer.tensorboard=false trainer.save_every=1 trainer.keep=2 trainer.wait_seconds=$deadline"
train="data.train_files=$work/sums.jsonl data.train_batch_size=8 rollout.n=4 data.max_prompt_length=16 data.max_response_length=48 rollout.ignore_eos=true
    train.micro_tokens=512 trainer.peak_tflops=0.1 trainer.save_buffer=4096 reward.library=$(dirname "$hone")/scorers/low_bytes.so"
sft="data.train_files=$work/pairs.jsonl data.val_files=$work/pairs.jsonl sft.batch_size=8 sft.max_length=32 train.micro_tokens=64 trainer.val_every=1 trainer.save_buffer=4096"
under() { # under N RUN COMMAND...: in place of this shell, in a session of its own, as a terminal's would be
    local n=$1 run=$2
    shift 2
    exec timeout 300 mpirun --allow-run-as-root --oversubscribe -n "$n" "$@" trainer.run_dir="$work/$run" >"$work/$run.log" 2>&1
}
ranks_of() { pgrep -f "^$hone .*trainer.run_dir=$work/$1\$"; } # ranks_of RUN
find_rank() { # find_rank RUN K: pid and the watch's thread of that rank
    local p t name
    pid="" tid=""
    while [ -z "$tid" ] && kill -0 $child 2>/dev/null; do
        for p in $(ranks_of "$1"); do
            tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" || continue
            for t in /proc/$p/task/*; do
                read -r name 2>/dev/null <"$t/comm"
                case $name in starting | loading | rollout | update | sync | saving | validation) pid=$p tid=$t ;; esac
            done
        done
    done
}
wait_phase() { # wait_phase PHASE: the rank found is in it, or gone
    local name=""
    while [ "$name" != "$1" ] && [ -e "$tid" ]; do read -r name <"$tid/comm"; done 2>/dev/null
}
told_once() { # told_once RUN STEPS: each step has one line
    [ "$(grep -oE '^\{"step":[0-9]+' "$work/$1/metrics.jsonl" | sort | uniq -c | awk '$1 == 1' | wc -l)" = "$(wc -l <"$work/$1/metrics.jsonl")" ] &&
        grep -q "^{\"step\":$2," "$work/$1/metrics.jsonl"
}

fails_in() { # fails_in VERB PHASE SIGNAL RANK THEN [KEY=VALUE...]: in that phase the rank gets the signal; then the run goes on, on so many ranks
    local more="${*:6}" verb=$1 phase=$2 signal=$3 k=$4 then=$5 run=$1_$2_$3_$4 what="$1, $2, -$3 of rank $4" begin took limit=10 name
    (under 8 "$run" "$hone" "$verb" $common ${!verb} $more trainer.steps=100000) &
    child=$!
    [ "$phase" = loading ] || wait_lines "$run" 2
    find_rank "$run" "$k"
    wait_phase "$phase"
    begin=$EPOCHREALTIME
    kill "-$signal" "$pid" 2>/dev/null
    ok $? "$what: it was gone before: $(tail -5 "$work/$run.log")"
    wait $child 2>/dev/null
    ok $((! $?)) "$what: exit code 0"
    child=""
    while [ -n "$(ranks_of "$run")" ] && [ "${EPOCHREALTIME%.*}" -lt $((${begin%.*} + 60)) ]; do sleep 0.05; done
    took=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
    [ "$signal" = STOP ] && limit=$((10 + deadline))
    awk -v t="$took" -v l=$limit 'BEGIN { exit !(t <= l) }' && [ -z "$(ranks_of "$run")" ]
    ok $? "$what: the ranks were gone after $took s: $(ranks_of "$run" | tr '\n' ' ')"
    name="rank $k (is gone|has given no sign of life).* it was in $phase"
    expect "$what" "$work/$run.log" "^hone: .*$name"
    [ ! -f "$work/$run/log.txt" ] || expect "$what, the run's log" "$work/$run/log.txt" "$name"
    local done_steps=$(cat "$work/$run/metrics.jsonl" 2>/dev/null | grep -oE '^\{"step":[0-9]+' | tail -1 | grep -oE '[0-9]+')
    done_steps=${done_steps:-0}
    (under "$then" "$run" "$hone" "$verb" $common ${!verb} $more trainer.wait_seconds=60 trainer.steps=$((done_steps + 2)))
    ok $? "$what, going on with $then ranks: $(tail -3 "$work/$run.log")"
    told_once "$run" $((done_steps + 2))
    ok $? "$what, going on with $then ranks: steps $(grep -oE '^\{"step":[0-9]+' "$work/$run/metrics.jsonl" | tr '\n' ' ')"
    [ "$done_steps" -lt 3 ] || [ "$phase" = loading ] || expect "$what" "$work/$run/log.txt" 'going on from|changed since the last start'
    rm -rf "${work:?}/$run"
}
if [ "$short" = short ]; then
    fails_in train update KILL 5 3
    fails_in sft saving STOP 2 8
else
    for signal in KILL STOP; do
        for phase in loading rollout update saving; do fails_in train $phase $signal $((1 + RANDOM % 7)) $((1 + RANDOM % 8)); done
        for phase in loading update validation saving; do fails_in sft $phase $signal $((1 + RANDOM % 7)) 4; done
    done
    fails_in train sync KILL 3 8 grid.tp=2 rollout.grid.tp=4 # weights move from one cut to another
    fails_in train sync STOP 6 4 grid.tp=2 grid.pp=2 rollout.grid.tp=1
    fails_in train update KILL 0 8 # the first is the one that watches and writes
    fails_in train saving STOP 0 3
fi

# ---- what goes wrong on one rank alone: rank 2 of 4 has another command line, or other limits
cat >"$work/odd" <<'END2'
#!/bin/bash
# odd 'WHAT RANK 2 DOES FIRST' COMMAND...; $odd in its arguments is 2 there
first=$1
shift
if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then eval "$first"; fi
exec "$@" $more
END2
chmod +x "$work/odd"
may_go=""
one_fails() { # one_fails WHAT PATTERN FIRST VERB KEY=VALUE...: all end with exit code 1, said once, and in the log; $may_go: or as if nothing were
    local what=$1 pattern=$2 first=$3 verb=$4
    shift 4
    rm -rf "$work/one"
    (under 4 one "$work/odd" "$first" "$hone" "$verb" $common ${!verb} trainer.steps=3 "$@")
    local rc=$?
    if [ -n "$may_go" ] && [ $rc = 0 ]; then
        grep -q '^all [0-9]* steps are done' "$work/one.log"
        ok $? "$what: exit code 0: $(cat "$work/one.log")"
        return
    fi
    [ $rc != 0 ] && [ $rc != 124 ] && [ "$(grep -c '^hone' "$work/one.log")" = 1 ] && grep -qE "^hone.*$pattern" "$work/one.log" && [ -z "$(ranks_of one)" ]
    ok $? "$what: exit code $rc: $(cat "$work/one.log")"
    [ ! -f "$work/one/log.txt" ] || grep -q 'it was in ending' "$work/one.log" || expect "$what, the run's log" "$work/one/log.txt" "$pattern"
}
cp -r "$work/model" "$work/model2"
truncate -s 20000 "$work/model2/model.safetensors"
one_fails "a model cut off for one rank" 'rank 2 has model.safetensors 20000 bytes' "more=model.path=$work/model2" sft
one_fails "a model cut off for one rank" 'rank 2 has model.safetensors 20000 bytes' "more=model.path=$work/model2" train grid.tp=2 rollout.grid.tp=4
one_fails "a disk that is full for one rank" 'rank 2: .*(File too large|cannot write|No space)|the checkpoint of step 1 was not written' 'ulimit -f 64' train
[ -z "$(ls "$work/one/checkpoints" | grep -v '^\.')" ] && [ -z "$(find "$work/one/checkpoints" -name '.writing-*')" ]
ok $? "a disk that is full for one rank: $(ls -a "$work/one/checkpoints")"
if [ "$short" != short ]; then
    one_fails "a data file that one rank does not have" 'rank 2: .*nowhere.jsonl' "more=data.train_files=$work/nowhere.jsonl" train
    # Weights near the largest float, with which the loss is no number: of layer 2's third head, which rank 2 alone has where tp is 4.
    # Where others have it too it is seen when it was loaded, and a weight that is no number by whoever loads it.
    cp -r "$work/model" "$work/model3" && cp -r "$work/model" "$work/model4"
    head=$(($(stat -c %s "$work/model/model.safetensors") - 7234048 + 3684352 + 64 * 128 * 4))
    head -c 4096 /dev/zero | tr '\0' '\177' | dd of="$work/model3/model.safetensors" bs=1 seek=$head conv=notrunc 2>/dev/null
    head -c 4096 /dev/zero | tr '\0' '\377' | dd of="$work/model4/model.safetensors" bs=1 seek=$head conv=notrunc 2>/dev/null
    one_fails "numbers of one rank that are not finite" 'step 1: .*stopped' "more=model.path=$work/model3" sft grid.tp=4
    one_fails "numbers of one rank that are not finite" 'not finite' "more=model.path=$work/model3" train grid.tp=4 rollout.grid.tp=4
    one_fails "other weights of one rank" 'rank 2 has read other bytes of model.layers.2.self_attn.q_proj.weight than rank 0' "more=model.path=$work/model3" train
    one_fails "a weight of one rank that is no number" 'rank 2: .*model4/model.safetensors: tensor model.layers.2.self_attn.q_proj.weight: .*finite' "more=model.path=$work/model4" train
fi
if ! nm "$hone" | grep -q __asan_init; then
    shim="export LD_PRELOAD=$(dirname "$hone")/shims/failing.so"
    rm -rf "$work/one"
    (under 4 one "$work/odd" "$shim SHIM_COUNT=$work/count" "$hone" train $common $train trainer.steps=1)
    n=$(cat "$work/count")
    [ "$n" -gt 0 ]
    ok $? "counting allocations: $(tail -3 "$work/one.log")"
    for last in ${short:+700} $([ "$short" ] || seq 300 200 1700); do # (calls before are Open MPI's, which does not bear it; some later ones too)
        one_fails "memory refused from call $((n - last)) of $n on" 'rank 2(: | is gone .*want of memory)' \
            "$shim SHIM_FROM=$((n - last))" train trainer.steps=1
    done
    # hone's own calls alone, from opening the watch to sync and its buffers: those of Open MPI have what they ask for
    mkdir "$work/own" && cp "$(dirname "$hone")/shims/hone" "$work/own/" && ln -s "$(dirname "$hone")/libhone_mpi.so" "$work/own/"
    own="shift; set -- $work/own/hone \"\$@\"; export"
    rm -rf "$work/one"
    (under 4 one "$work/odd" "$own SHIM_COUNT=$work/count" "$hone" train $common $train trainer.steps=1 grid.tp=2 rollout.grid.tp=4)
    n=$(cat "$work/count")
    [ "$n" -gt 100 ]
    ok $? "counting hone's own: $(tail -3 "$work/one.log")"
    may_go=yes
    for k in $([ "$short" ] && echo 40 $((n / 2)) || seq 7 $((n / 24)) $n); do
        one_fails "hone's own call $k of $n refused" 'rank 2(: | is gone .*want of memory)' "$own SHIM_AT=$k" train trainer.steps=1 grid.tp=2 rollout.grid.tp=4
    done
    may_go=""
fi

# ---- told to end by its launcher, while it loads too (tests/cmd/ranks_train.sh does it between steps)
for when in $([ "$short" = short ] || echo loading rollout update saving); do
    (under 4 "told_$when" "$hone" train $common $train trainer.steps=100000) &
    child=$!
    [ $when = loading ] || wait_lines "told_$when" 2
    find_rank "told_$when" 1
    wait_phase $when
    kill -USR1 "$(pgrep -P $child -x mpirun || echo $child)"
    wait $child
    ok $? "told to end in $when: $(tail -5 "$work/told_$when.log")"
    child=""
    expect "told to end in $when" "$work/told_$when.log" 'told to stop after step [0-9]+ of 100000; saved'
done
the_end
