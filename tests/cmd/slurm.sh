#!/bin/bash
# slurm.sh - the batch script of the recipes, over a Slurm of three commands that are this script's: nodes of two ranks of
# this machine, which are told to die while they train.  It goes on on a node to spare, then on what is left with the
# layout that is planned for it, from the newest checkpoint; what would only fail again is not begun for ever.
#   bash tests/cmd/slurm.sh build/hone
. tests/cmd/train_common.bash
need_ranks
make_model
make_sums 12
mkdir -p "$work/bin"
ln -s "$hone" "$work/bin/hone"
cat >"$work/bin/scontrol" <<'END'
#!/bin/bash
[ "$1" = requeue ] && echo "requeued $2" >>"$DEAD/requeued" || tr , '\n' <<<"$3"
END
cat >"$work/bin/sinfo" <<'END'
#!/bin/bash
for a; do case $a in --nodes=*) node=${a#*=} ;; esac; done
[ -e "$DEAD/$node" ] && echo 'down*' || echo alloc
END
# Ranks on the nodes that it is told; where DEAD/NODE.at says after how many steps a node dies, its ranks are killed then.
cat >"$work/bin/srun" <<'END'
#!/bin/bash
while [ "${1:0:2}" = -- ]; do case $1 in --nodelist=*) nodes=${1#*=} ;; --ntasks=*) n=${1#*=} ;; esac; shift; done
[ "$1" = true ] && exit 0
echo "$nodes $n" >>"$DEAD/starts"
mpirun --allow-run-as-root --oversubscribe -n "$n" "$@" &
child=$!
for at in "$DEAD"/*.at; do
    node=$(basename "$at" .at) steps=$(cat "$at")
    [[ ",$nodes," = *",$node,"* ]] || continue
    while kill -0 $child 2>/dev/null; do
        [ "$(ls -d "$RUN"/checkpoints/step-* 2>/dev/null | wc -l)" -ge "$steps" ] && { touch "$DEAD/$node"; rm "$at"; pkill -9 -P $child; break 2; }
        sleep 0.05
    done
done
wait $child
END
chmod +x "$work"/bin/*
recipe() { # recipe: of two nodes with two ranks each
    cat >"$work/recipe.yaml" <<END
model:
  path: $work/model
data:
  train_files: [$work/sums.jsonl]
  max_prompt_length: 16
  max_response_length: 12
  train_batch_size: 4
rollout:
  n: 2
  grid:
    tp: 1
train:
  lr: 1.0e-3
  mini_batch_size: 4
  micro_tokens: 128
grid:
  tp: 2
  dp: 2
  nodes: 2
  gpus_per_node: 2
trainer:
  device: cpu
plan:
  cluster: "thisx4"
  response_mean: 8
  prompt_mean: 6
END
}
job() { # job NODES KEY=VALUE...
    local nodes=$1
    shift
    PATH=$work/bin:$PATH DEAD=$work/dead RUN=$work/run SLURM_JOB_ID=7 SLURM_JOB_NODELIST=$nodes timeout 120 bash recipes/slurm/train.sbatch "$work/recipe.yaml" \
        trainer.run_dir="$work/run" trainer.threads=1 trainer.tensorboard=false trainer.save_every=1 trainer.keep=99 \
        reward.library="$(dirname "$hone")/scorers/low_bytes.so" "$@" >"$work/job.log" 2>&1
}
fresh() { rm -rf "$work/run" "$work/dead"; mkdir "$work/dead"; recipe; }

# a node to spare takes the place of the first that dies; when the next does, what is left is fewer
fresh
echo 2 >"$work/dead/n2.at"
echo 4 >"$work/dead/n3.at"
job n1,n2,n3 trainer.steps=6
ok $? "three nodes of which two die: $(tail -5 "$work/job.log")"
[ "$(tr '\n' ';' <"$work/dead/starts")" = "n1,n2 4;n1,n3 4;n1 2;" ]
ok $? "it was started on $(tr '\n' ';' <"$work/dead/starts")"
[ "$(grep -c 'going on from .*step-' "$work/job.log")" = 2 ] && [ -d "$work/run/checkpoints/step-000006" ]
ok $? "it did not go on to the end: $(ls "$work/run/checkpoints" | tr '\n' ' ')"
grep -q 'train.sbatch: 1 of 2 nodes are left: on 1, with .*grid.dp=' "$work/job.log"
ok $? "nothing is said of the other layout: $(grep train.sbatch "$work/job.log")"

# nothing fits on what is left: back into the queue
fresh
echo 1 >"$work/dead/n2.at"
sed -i 's/thisx4/H20-96x4/; s/^plan:/plan:\n  host_memory: 1MB/' "$work/recipe.yaml"
job n1,n2 trainer.steps=6
[ $? = 1 ] && [ "$(cat "$work/dead/requeued")" = "requeued 7" ] && grep -q '1 of 2 nodes are left, and no layout fits: the job is queued again' "$work/job.log"
ok $? "no layout fits: $(tail -3 "$work/job.log")"

# a mistake is not begun for ever
fresh
job n1,n2 trainer.steps=6 train.lr=fast
[ $? != 0 ] && [ "$(wc -l <"$work/dead/starts")" = 3 ] && grep -q 'three starts in a row have saved nothing' "$work/job.log"
ok $? "a setting that is wrong: started $(cat "$work/dead/starts"), $(tail -2 "$work/job.log")"
the_end
