#!/bin/bash
# ranks_sft.sh - `hone sft` under mpirun: every grid learns what one rank learns, a run that was killed goes on byte for
# byte, also on another grid; one rank writes the run directory.
#   bash tests/cmd/ranks_sft.sh build/hone
. tests/cmd/train_common.bash
need_ranks
make_model
for a in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
sft() { (sft_start "$@"); } # sft N RUN KEY=VALUE...
sft_start() { # in place of this shell
    local n=$1 run=$2
    shift 2
    exec $(under_ranks "$n") "$hone" sft model.path="$work/model" data.train_files="$work/pairs.jsonl" data.val_files="$work/pairs.jsonl" trainer.device=cpu \
        sft.batch_size=8 sft.max_length=32 train.micro_tokens=64 trainer.threads=1 train.lr=1e-3 trainer.steps=4 trainer.val_every=2 \
        trainer.tensorboard=false trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}
near() { # near A B NAME: every step within 1e-5 of it
    paste <(column "$1" "$3") <(column "$2" "$3") | awk 'NF != 2 || ($1 - $2)^2 > (1e-5 * $1)^2 { bad = 1 } END { exit bad || NR == 0 }'
}

# ---- every grid: the first loss is a sum of the same log-probs, in double; what follows agrees to rounding
sft 1 one
ok $? "one rank: $(tail -1 "$work/one.log")"
for grid in "2 dp" "3 dp" "2 tp=2" "4 tp=2" "2 pp=2" "2 cp=2" "4 tp=2 cp=2" "8 tp=2 pp=2" "2 ep=2" "4 tp=2 ep=4"; do
    set -- $grid
    n=$1 run=$(tr ' =' '__' <<<"on $grid")
    shift
    [ "$1" = dp ] && shift
    sft "$n" "$run" "${@/#/grid.}"
    ok $? "$grid: $(cat "$work/$run.log")"
    awk -v a="$(column "$run" train/loss | head -1)" -v b="$(column one train/loss | head -1)" 'BEGIN { exit !((a - b)^2 <= (1e-12 * b)^2) }'
    ok $? "$grid: the first loss is $(column "$run" train/loss | head -1), one rank's $(column one train/loss | head -1)"
    for what in train/loss train/grad_norm val/loss; do
        near one "$run" $what
        ok $? "$grid: $what is $(column "$run" $what | tr '\n' ' '), one rank's $(column one $what | tr '\n' ' ')"
    done
    [ "$(grep -c '^step ' "$work/$run.log")" = 4 ] && [ "$(wc -l <"$work/$run/metrics.jsonl")" = "$(wc -l <"$work/one/metrics.jsonl")" ]
    ok $? "$grid: steps were told $(grep -c '^step ' "$work/$run.log") times"
done

# ---- killed, and gone on with: the bytes of the run that was not, and on another grid the same run
sft 4 whole grid.tp=2 trainer.steps=6 trainer.save_every=1 trainer.keep=9
ok $? "a run of 4 ranks: $(tail -1 "$work/whole.log")"
kill_ranks 3 sft_start 4 killed grid.tp=2 trainer.steps=6 trainer.save_every=1 trainer.keep=9
sft 4 killed grid.tp=2 trainer.steps=6 trainer.save_every=1 trainer.keep=9
ok $? "gone on with: $(tail -1 "$work/killed.log")"
touch "$work/whole/samples.jsonl" "$work/killed/samples.jsonl"
same_run whole killed 6 "killed on 4 ranks"
sft 2 moved trainer.steps=3 trainer.save_every=3
sft 4 moved trainer.steps=4 grid.tp=4
ok $? "on another grid: $(cat "$work/moved.log")"
expect "a grid that changed" "$work/moved.log" 'grid was "dp2", is "tp4": sums are added in another order'
near one moved train/loss
ok $? "on another grid: $(column moved train/loss | tr '\n' ' ')"
"$hone" export "$work/moved" "$work/taken" >"$work/export.log" 2>&1
ok $? "export: $(cat "$work/export.log")"

# ---- told to stop: all ranks save and end
stop_ranks 2 sft_start 2

# ---- refusals, said once
refused_sft() { # refused_sft PATTERN N KEY=VALUE...
    local pattern=$1 n=$2
    shift 2
    sft "$n" no "$@"
    [ $? = 1 ] && [ "$(grep -c '^hone' "$work/no.log")" = 1 ] && grep -qE "^hone sft: .*$pattern" "$work/no.log"
    ok $? "$*: $(cat "$work/no.log")"
}
refused_sft 'nearest is tp2,pp2' 4 grid.tp=2 grid.pp=3
refused_sft 'takes 3 ranks, and there are 2' 2 grid.dp=3
refused_sft '2 machines x 8 processes' 2 grid.nodes=2 grid.gpus_per_node=8
refused_sft 'vpp is 2 without stages' 2 grid.vpp=2
refused_sft 'does not exist' 2 data.train_files=/no/file.jsonl
refused_sft 'only 8 pairs' 2 sft.batch_size=9
the_end
