#!/bin/bash
# nccl_cpu.sh - comm/nccl.c and what stands on it, on CPUs: programs whose CPU has a queue, over a driver and an NCCL that
# are the host's (tests/shim/gpu), with delays drawn at random.  Groups, models and weights that move, on 2 to 8 ranks;
# runs, killed ones too, byte for byte those over MPI; steps of decoding that are captured and replayed; and faults that
# are planted, each of which must be seen and named.
#   bash tests/cmd/nccl_cpu.sh build/hone
. tests/cmd/train_common.bash
shims=$(dirname "$hone")/shims/gpu
[ -x "$shims/hone" ] || { echo "0 passed, 0 failed, 1 skipped (build/shims/gpu was not built)"; exit 0; }
need_ranks
queued="env GPU_DIR=$work GPU_SEED=7"
begin=$SECONDS
told() { echo "$1: $((SECONDS - begin)) s"; begin=$SECONDS; }

# ---- what ranks do together
of_ranks() { # of_ranks N PROGRAM MODE: it ends well, and its checks are counted here
    local n=$1 sums
    shift
    $queued $(under_ranks "$n") "$shims/$1" --ranks "$2" >"$work/log" 2>&1
    ok $? "$n ranks, $*: $(tail -5 "$work/log")"
    sums=$(grep -aoE '[0-9]+ passed, [0-9]+ failed' "$work/log" | tail -1)
    passed=$((passed + ${sums%% passed*})) failed=$((failed + $(echo "$sums" | grep -oE '[0-9]+ failed' | cut -d' ' -f1)))
}
for n in 2 4 8; do of_ranks $n test_comm all; done
# the same where two, or three, of the ranks are a machine: groups that lie inside one have a communicator of its own
GPU_NODE=2 of_ranks 4 test_comm all
GPU_NODE=3 GPU_BYTES=$work/bytes of_ranks 8 test_comm all
cat "$work"/bytes.* | awk '$3 { sent[$1 " " $2] = 1 } END { exit !(sent["all 8"] && sent["node 3"] && sent["node 2"]) }'
ok $? "8 ranks on machines of 3, 3 and 2: who sent by what: $(cat "$work"/bytes.*)"
# a rank that does not come, where the device waits for it: the host that waits for the device says so
$queued $(under_ranks 3) "$shims/test_comm" --ranks gathers >"$work/log" 2>&1
[ $? != 0 ] && grep -q 'rank 1 has done nothing for 1 s' "$work/log" \
    && grep -q 'is in update, waiting for an all-gather of group world, F32 \[3,7\], layer 3' "$work/log"
ok $? "a device that waits in vain: $(tail -5 "$work/log")"
of_ranks 2 test_ranks tp=2+ep=2,tp=2+cp=2+pp=2,vpp=2
of_ranks 4 test_ranks tp=2,pp=2+ep=4+tp=2,ep=2+tp=2,ep=2,pp=2+tp=4,ep=4+cp=2,tp=2
of_ranks 8 test_ranks tp=2,ep=2,pp=4
told "groups and models"
of_ranks 8 test_sync 10
told "weights that move"

# ---- runs: over NCCL what they are over MPI, also where they were killed
make_model
make_sums 12
on_start() { # on_start N RUN KEY=VALUE... in place of this shell: over $via
    local n=$1 run=$2
    shift 2
    exec $via $(under_ranks "$n") "$program" train model.path="$work/model" "data.train_files=[$work/sums.jsonl]" data.train_batch_size=4 rollout.n=4 \
        data.max_prompt_length=16 data.max_response_length=12 train.micro_tokens=128 train.lr=1e-3 trainer.threads=1 trainer.peak_tflops=0.1 trainer.device=cpu \
        trainer.samples=16 trainer.steps=3 trainer.tensorboard=false trainer.save_every=1 trainer.keep=9 reward.library="$(dirname "$hone")/scorers/low_bytes.so" \
        trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1 </dev/null
}
by_mpi() { via="" program=$hone; "$@"; }
by_nccl() { via=$queued program=$shims/hone; "$@"; }
on() { (on_start "$@"); ok $? "$*: $(tail -3 "$work/$2.log")"; }
noted() { # noted RUN: steps of decoding of all its ranks, and how many of them were replayed
    cat "$work/$1".count.* | awk '/steps/ { some += $1; all += $3 } END { print some + 0, all + 0 }'
}
# share: of the steps of decoding that are to be replayed, in percent; node: ranks of a machine.  Over machines experts'
# rows go to each machine once, in the communicator of all, and inside it by its own.
while read -r n share node grid; do
    rm -rf "$work/mpi" "$work/nccl" "$work"/nccl.count.*
    by_mpi on "$n" mpi $grid
    GPU_NODE=$node GPU_COUNT=$work/nccl.count by_nccl on "$n" nccl $grid
    same_run mpi nccl 3 "over NCCL, $n ranks, $grid"
    all_exact nccl
    ok $? "$n ranks, $grid: the sampler's log-probs are not the trainer's"
    read -r some all < <(noted nccl)
    [ "$some" -gt 0 ] && [ $((100 * some)) -ge $((share * all)) ]
    ok $? "$n ranks, $grid: $some of $all steps of decoding were replayed, not $share %"
    told "$n ranks, $grid ($some of $all steps of decoding replayed)"
done <<'END'
2 1 2 grid.tp=2 rollout.grid.tp=2 train.use_kl_loss=true train.park_states=true train.weights=bf16 train.master=remainder train.moments=bf16
4 1 4 grid.pp=2 grid.vpp=2 rollout.grid.tp=2 train.park_weights=true
4 1 4 grid.cp=2 grid.tp=2 rollout.grid.tp=4
4 95 4 grid.ep=4 rollout.grid.dp=4 rollout.grid.ep=4 rollout.max_batch=8 data.max_response_length=100 train.micro_tokens=512
8 95 2 grid.tp=2 grid.pp=2 grid.ep=4 rollout.grid.tp=2 rollout.grid.dp=4 rollout.grid.ep=8 data.train_batch_size=8 data.max_response_length=60 train.micro_tokens=256
END
four="grid.tp=2 grid.pp=2 rollout.grid.tp=2 trainer.steps=4"
by_mpi on 4 whole $four
by_nccl kill_ranks 2 on_start 4 killed $four
by_nccl on 4 killed $four
same_run whole killed 4 "killed on 4 ranks"
told "killed, and gone on with"

# ---- faults
planted() { # planted KIND:N:RANK PATTERN: all 4 ranks end, not well, and that is said
    GPU_PLANT=$1 $queued $(under_ranks 4) "$shims/test_comm" --ranks all >"$work/log" 2>&1 </dev/null
    [ $? != 0 ] && grep -qE "$2" "$work/log"
    ok $? "planted $1: no '$2' in $(tail -5 "$work/log")"
}
wrong='^FAILED .* over 4: [0-9]+ wrong'
planted wait:5:1 "$wrong"
planted wait:13:2 "$wrong"
planted queue:9:3 "$wrong"
planted queue:12:1 "$wrong"
planted queue:40:2 "$wrong"
planted early:1:0 "$wrong"
planted early:4:1 "$wrong"
planted length:4:1 'rank 1 of 4 wants 8 bytes from rank 0, which sent 12: calls are not in one order'
export GPU_STUCK_S=6 # until a circle is called one
planted order:1:1 'rank [023] of 4 is stuck: wants 12 bytes, rank 1, 0 moved'
planted order:9:2 'rank [013] of 4 is stuck: wants 96 bytes, rank 2, 0 moved'
unset GPU_STUCK_S
planted_run() { # planted_run KIND:N:RANK PATTERN: the same of a run
    GPU_PLANT=$1 by_nccl on_start 4 failed $four &
    wait $!
    [ $? != 0 ] && grep -qE "$2" "$work/failed.log"
    ok $? "planted $1: no '$2' in $(tail -5 "$work/failed.log")"
    rm -rf "$work/failed"
}
planted_run fail:40:1 '^hone: rank 1: NCCL: .*unhandled system error'
planted_run noted:1:2 'gpu shim: a stream that captures waits for what is not captured with it'
# the device goes on before a bundle of a replayed step is there: what was sampled is not what is trained
planted_run noted:2:3 'differ'
told "planted faults"
the_end
