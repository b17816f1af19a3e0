#!/bin/bash
# slow_disk.sh - checkpoints on a file system that is as slow for this model as one of 10 GB/s is for the 8 TB of 671
# billion parameters: a save takes SECONDS (805), longer than trainer.wait_seconds (600), and is completed with default
# settings; it is what a quick disk gets; a resume on another grid reads every byte once, no rank more than its share,
# and gives the bytes of one that is not slowed.  Ranks that wait ask the metadata server seldom.
#   bash tests/all/slow_disk.sh build/hone [SECONDS]     of other SECONDS wait_seconds is in proportion; an hour with 805
. tests/cmd/train_common.bash
need_ranks
seconds=${2:-805}
[ -f "$(dirname "$hone")/shims/disk.so" ] || { echo "0 passed, 0 failed, 1 skipped (shims were not built)"; exit 0; }
disk=$(dirname "$hone")/shims/disk.so
make_model
make_sums 12
wait=""
[ "$seconds" = 805 ] || wait=trainer.wait_seconds=$((seconds * 600 / 805))
of="data.train_files=$work/sums.jsonl data.train_batch_size=4 rollout.n=2 data.max_prompt_length=16 data.max_response_length=12
    train.micro_tokens=128 train.lr=1e-3 reward.library=$(dirname "$hone")/scorers/low_bytes.so trainer.threads=1 trainer.device=cpu
    trainer.tensorboard=false trainer.keep=9 model.path=$work/model"
save_grid="grid.tp=2 grid.pp=2 rollout.grid.tp=2" load_grid="grid.cp=2 grid.tp=2"
run() { # run NAME RATE KEY=VALUE...: 4 ranks; RATE 0: as quick as it is
    local name=$1 rate=$2
    shift 2
    $(under_ranks 4) env LD_PRELOAD="$disk" DISK_RATE="$rate" DISK_CLOCK="$work/clock" DISK_COUNT="$work/$name.count" \
        "$hone" train $of trainer.run_dir="$work/$name" "$@" >>"$work/$name.log" 2>&1
}
most() { awk -v c="$2" '$c > m { m = $c } END { printf "%d\n", m }' "$work/$1.count"-*; } # most NAME COLUMN: of a rank
all() { awk -v c="$2" '{ s += $c } END { printf "%d\n", s }' "$work/$1.count"-*; }
same() { diff -r <(cd "$work/$1/checkpoints/$3" && sha256sum $(find . -name '*.safetensors*' | sort)) <(cd "$work/$2/checkpoints/$3" && sha256sum $(find . -name '*.safetensors*' | sort)) >"$work/diff"; }

# ---- saves
run quick 0 trainer.steps=2 trainer.save_every=1 $save_grid
ok $? "a quick disk: $(tail -1 "$work/quick.log")"
bytes=$(cat "$work"/quick/checkpoints/step-000002/*.safetensors "$work"/quick/checkpoints/step-000002/model/*.safetensors | wc -c)
rate=$(awk -v b="$bytes" -v s="$seconds" 'BEGIN { printf "%.1f", b / s }')
[ "$(all quick 2)" -ge $((2 * bytes)) ] && [ "$(all quick 2)" -le $((2 * bytes + bytes / 20)) ]
ok $? "two saves of $bytes bytes write $(all quick 2)"
begun=$(date +%s)
run slow "$rate" trainer.steps=2 trainer.save_every=1 $save_grid $wait
ok $? "a slow disk: $(tail -1 "$work/slow.log")"
took=$(($(date +%s) - begun))
[ $took -ge $((seconds * 18 / 10)) ]
ok $? "two saves of $seconds s each end after $took s"
for step in step-000001 step-000002; do
    same quick slow $step
    ok $? "$step is not what a quick disk has: $(head -2 "$work/diff")"
done
calls=$(all slow 3)
echo "a save of $seconds s: $((calls / 2)) calls of 4 ranks to the file system's metadata"
[ "$calls" -lt $((4 * took * 4 + 4000)) ] # each: it waits for another by two or three a second, at last
ok $? "$calls metadata calls in $took s"

# ---- a resume on another grid
cp -r "$work/slow" "$work/other"
rm -f "$work"/{other,slow}.count-*
run other 0 trainer.steps=3 $load_grid
ok $? "going on, a quick disk: $(tail -1 "$work/other.log")"
begun=$(date +%s)
run slow "$rate" trainer.steps=3 $load_grid $wait
ok $? "going on, a slow disk: $(tail -1 "$work/slow.log")"
echo "going on and saving: $(($(date +%s) - begun)) s"
grep -q 'going on from .*step-000002: 2 steps are done' "$work/slow.log"
ok $? "it did not go on: $(tail -2 "$work/slow.log")"
same other slow step-000003
ok $? "the step behind a slow resume is another: $(head -2 "$work/diff")"
[ "$(all slow 1)" -ge "$bytes" ] && [ "$(all slow 1)" -le $((bytes + bytes / 20)) ]
ok $? "of $bytes bytes $(all slow 1) were read"
[ "$(most slow 1)" -le $(($(most slow 2) + $(most slow 2) / 20)) ]
ok $? "a rank reads $(most slow 1), what it answers for are $(most slow 2)"
echo "of $bytes bytes a rank reads $(most slow 1) at most, its share is $(most slow 2)"
the_end
