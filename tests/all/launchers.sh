#!/bin/bash
# launchers.sh - hone under each launcher: mpirun as root and oversubscribed; mpirun over TCP on two machines made of
# namespaces (network, mounts, names; nsenter in place of ssh); in Slurm on those two: mpirun inside sbatch, srun
# --mpi=pmix on one node and on two; the recipes' batch script, one of whose nodes dies; srun without pmix and MPICH's mpirun are refused in one line.  Each launch scores,
# learns (sft) and trains for real: the bytes are those of mpirun alone.
#   bash tests/all/launchers.sh build/hone          as root; installs slurm and MPICH's launcher where they are missing
. tests/cmd/train_common.bash
. tools/packages.sh
skip() { echo "$passed passed, $failed failed, $((skipped + 1)) skipped ($1)"; exit 0; }
command -v mpirun >/dev/null || skip "there is no mpirun"
[ -f "$(dirname "$hone")/libhone_mpi.so" ] || skip "libhone_mpi.so was not built"
[ "$(id -u)" = 0 ] || skip "not root"
rm -rf "$work"
work=$(mktemp -d "$(dirname "$hone")/launchers.XXXXXX") # not in /tmp: each machine has its own
daemons=""
tidy() {
    [ -z "$daemons" ] || kill $(cat $daemons 2>/dev/null) 2>/dev/null
    [ -z "$own_munged" ] || kill "$own_munged" 2>/dev/null
    for i in 1 2; do [ ! -f "$work/h$i/pid" ] || kill "$(cat "$work/h$i/pid")" 2>/dev/null; done
    for i in 1 2 3 4 5; do rm -rf "$work" 2>/dev/null && break; sleep 1; done # what is told to end still writes its state
}
trap tidy EXIT
make_model
make_sums 24
for a in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
awk 'BEGIN { for (i = 0; i < 9; i++) { printf "{\"tokens\":["; for (k = 0; k <= i; k++) printf "%s%d", k ? "," : "", 65 + i + k; print "]}" } }' >"$work/in.jsonl"
common="model.path=$work/model train.lr=1e-3 trainer.threads=1 trainer.device=cpu trainer.tensorboard=false trainer.steps=2 trainer.wait_seconds=60"

jobs_of() { # jobs_of RUN: the command lines
    echo "$hone score $work/model --device cpu --in $work/in.jsonl --grid tp=2,dp=2 --out $work/$1.score"
    echo "$hone sft $common grid.tp=2 data.train_files=$work/pairs.jsonl sft.batch_size=8 sft.max_length=32 train.micro_tokens=64 trainer.run_dir=$work/$1.sft"
    echo "$hone train $common data.train_files=$work/sums.jsonl data.train_batch_size=8 rollout.n=4 data.max_prompt_length=16 data.max_response_length=12" \
        "train.micro_tokens=128 trainer.peak_tflops=0.1 reward.library=$(dirname "$hone")/scorers/low_bytes.so trainer.run_dir=$work/$1.train"
}
same_bytes() { # same_bytes RUN: as mpirun alone has made them
    local f
    cmp -s "$work/alone.score" "$work/$1.score"
    ok $? "$1: score differs"
    for f in model/model.safetensors optimizer.safetensors; do
        for job in sft train; do
            cmp -s "$work/alone.$job/checkpoints/step-000002/$f" "$work/$1.$job/checkpoints/step-000002/$f"
            ok $? "$1: $job: $f differs"
        done
    done
}
launch() { # launch RUN COMMAND...: each job behind that command
    local run=$1
    shift
    jobs_of "$run" | while read -r job; do timeout 300 "$@" $job </dev/null || echo "$job: exit code $?"; done >"$work/$run.log" 2>&1
    ! grep -q 'exit code' "$work/$run.log"
    ok $? "$run: $(tail -20 "$work/$run.log")"
    same_bytes "$run"
}
refuses() { # refuses WHAT COMMAND...: one line of ours, nothing written
    local what=$1
    shift
    timeout 300 "$@" "$hone" sft $common data.train_files="$work/pairs.jsonl" sft.batch_size=8 sft.max_length=32 trainer.run_dir="$work/no" >"$work/no.log" 2>&1
    [ $? != 0 ] && [ "$(grep -c '^hone' "$work/no.log")" = 1 ] && grep -qE '^hone sft: .*(do not find each other without PMIx|but MPI .* sees 1)' "$work/no.log" && [ ! -e "$work/no" ]
    ok $? "$what: $(cat "$work/no.log")"
}

# ---- mpirun on this machine, as root, with more ranks than cores
launch alone mpirun --allow-run-as-root --oversubscribe -n 4

# ---- two machines: 10.77.0.1 and 10.77.0.2
machine() { # machine I: a process that holds its namespaces; /dev/shm and /tmp are its own
    mkdir -p "$work/h$1/tmp"
    unshare -m -u -n bash -c "hostname h$1 && ip link set lo up && mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && mount --bind '$work/h$1/tmp' /tmp &&
        touch '$work/h$1/up'; exec sleep infinity" >/dev/null 2>"$work/h$1/err" &
    echo $! >"$work/h$1/pid"
    while [ ! -f "$work/h$1/up" ] && [ ! -s "$work/h$1/err" ]; do sleep 0.05; done
    [ -f "$work/h$1/up" ]
}
cat >"$work/at" <<END2
#!/bin/bash
# at I COMMAND...: on that machine
i=\$1
shift
exec nsenter -t "\$(cat "$work/h\$i/pid")" -m -u -n "\$@"
END2
chmod +x "$work/at"
at() { "$work/at" "$@"; }
wire() {
    local i
    ip link add "hone$$a" type veth peer name "hone$$b" && ip link set "hone$$a" netns "$(cat "$work/h1/pid")" && ip link set "hone$$b" netns "$(cat "$work/h2/pid")" || return
    for i in 1:a 2:b; do
        at ${i%:*} ip addr add 10.77.0.${i%:*}/24 dev "hone$$${i#*:}" && at ${i%:*} ip link set "hone$$${i#*:}" up || return
    done
}
need_packages iproute2 util-linux >/dev/null && machine 1 && machine 2 && wire || skip "no namespaces to be had here: $(cat "$work"/h?/err)"
cat >"$work/agent" <<END2
#!/bin/bash
# agent HOST COMMAND...: in place of ssh
while [ "\${1#-}" != "\$1" ]; do shift; done
i=\${1##*[.h]}
shift
exec nsenter -t \$(cat "$work/h\$i/pid") -m -u -n bash -c "\$*"
END2
chmod +x "$work/agent"
launch two_machines "$work/at" 1 mpirun --allow-run-as-root --mca plm_rsh_agent "$work/agent" -H 10.77.0.1:2,10.77.0.2:2 -n 4
(timeout 300 "$work/at" 1 mpirun --allow-run-as-root --mca plm_rsh_agent "$work/agent" -H 10.77.0.1:2,10.77.0.2:2 -n 4 "$hone" sft $common trainer.steps=100000 \
    data.train_files="$work/pairs.jsonl" sft.batch_size=8 sft.max_length=32 trainer.run_dir="$work/killed" >"$work/killed.log" 2>&1) &
child=$!
wait_lines killed 2
kill -9 "$(for p in $(pgrep -f "^$hone .*$work/killed"); do tr '\0' '\n' <"/proc/$p/environ" | grep -qx OMPI_COMM_WORLD_RANK=3 && echo "$p"; done)"
ok $? "rank 3 on the other machine was not found"
wait $child
ok $((! $?)) "a rank of the other machine was killed: exit code 0"
child=""
expect "a rank of the other machine was killed" "$work/killed.log" '^hone: rank 3 is gone'
expect "a rank of the other machine was killed" "$work/killed/log.txt" 'rank 3 is gone'

# ---- another MPI's launcher
if need_packages mpich >/dev/null 2>&1 && command -v mpiexec.hydra >/dev/null; then
    refuses "MPICH's mpirun" mpiexec.hydra -n 2
else skipped=$((skipped + 1)); fi

# ---- Slurm
need_packages slurmd slurmctld slurm-client munge >/dev/null 2>&1 || skip "slurm cannot be installed"
if ! munge -n >/dev/null 2>&1; then
    mkdir -p /run/munge && chown munge /run/munge && runuser -u munge -- /usr/sbin/munged && own_munged=$(cat /run/munge/munged.pid)
fi
mkdir -p "$work/state" "$work/h1/spool" "$work/h2/spool"
cat >"$work/slurm.conf" <<END2
ClusterName=hone
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n/spool
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/%n/slurmd.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/%n/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
NodeName=h1 NodeAddr=10.77.0.1 CPUs=4
NodeName=h2 NodeAddr=10.77.0.2 CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
END2
export SLURM_CONF="$work/slurm.conf"
daemons="$work/ctld.pid $work/h1/slurmd.pid $work/h2/slurmd.pid"
at 1 slurmctld && at 1 slurmd && at 2 slurmd
for _ in $(seq 300); do [ "$(at 1 sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break; sleep 0.1; done
[ "$(at 1 sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] || skip "slurm does not start: $(tail -3 "$work/ctld.log" "$work/h1/slurmd.log")"
batch() { # batch COMMAND...: under mpirun in a batch job on both machines; what it says
    printf '#!/bin/bash\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\nmpirun -n 4 %s\n' "$*" >"$work/job.sh"
    at 1 sbatch -W -N2 -n4 --ntasks-per-node=2 -o "$work/job.log" "$work/job.sh"
    local rc=$?
    cat "$work/job.log"
    return $rc
}
run=sbatch
jobs_of $run | while read -r job; do batch $job </dev/null || echo "$job: exit code $?"; done >"$work/$run.log" 2>&1
! grep -q 'exit code' "$work/$run.log"
ok $? "$run: $(tail -20 "$work/$run.log")"
same_bytes $run
launch srun_one_node "$work/at" 1 srun -N1 -n4 --mpi=pmix
launch srun_two_nodes "$work/at" 1 srun -N2 -n4 --ntasks-per-node=2 --mpi=pmix
refuses "srun without pmix" "$work/at" 1 srun -N1 -n2 --mpi=none
refuses "srun with pmi2" "$work/at" 1 srun -N1 -n2 --mpi=pmi2

# ---- told to end by Slurm; and a rank that dies under srun, which itself would let the others wait
at 1 srun -N2 -n4 --mpi=pmix "$hone" sft $common trainer.steps=100000 data.train_files="$work/pairs.jsonl" sft.batch_size=8 sft.max_length=32 trainer.run_dir="$work/told" >"$work/told.log" 2>&1 &
child=$!
wait_lines told 2
at 1 scancel --signal=USR1 "$(at 1 squeue -h -o %i)"
wait $child
ok $? "scancel --signal=USR1: $(tail -5 "$work/told.log")"
expect "scancel --signal=USR1" "$work/told.log" 'told to stop after step [0-9]+ of 100000; saved'
for signal in KILL STOP; do
    run=srun_$signal
    at 1 srun -N2 -n4 --mpi=pmix "$hone" sft $common trainer.wait_seconds=4 trainer.steps=100000 data.train_files="$work/pairs.jsonl" sft.batch_size=8 sft.max_length=32 \
        trainer.run_dir="$work/$run" >"$work/$run.log" 2>&1 &
    child=$!
    wait_lines $run 2
    kill -$signal "$(for p in $(pgrep -f "^$hone .*$work/$run"); do tr '\0' '\n' <"/proc/$p/environ" | grep -qx SLURM_PROCID=3 && echo "$p"; done)"
    wait $child
    ok $((! $?)) "$run: exit code 0"
    child=""
    expect $run "$work/$run.log" '^hone: rank 3 (is gone|has given no sign of life)'
    expect $run "$work/$run/log.txt" 'rank 3 (is gone|has given no sign of life)'
    for _ in $(seq 100); do [ -z "$(pgrep -f "^$hone .*$work/$run")" ] && break; sleep 0.1; done # (a stopped one goes when slurmd kills it)
    [ -z "$(pgrep -f "^$hone .*$work/$run")" ]
    ok $? "$run: ranks are left"
done

# ---- the recipes' batch script: a node dies, and the job goes on on the other with a layout of its own
sed '/^#SBATCH --\(gpus\|ntasks\)-per-node/d; /^#SBATCH --exclusive/d' recipes/slurm/train.sbatch >"$work/train.sbatch"
cat >"$work/recipe.yaml" <<END2
model: {path: $work/model}
data: {train_files: [$work/sums.jsonl], max_prompt_length: 16, max_response_length: 12, train_batch_size: 4}
rollout: {n: 2}
train: {mini_batch_size: 4, micro_tokens: 128}
grid:
  tp: 2
  dp: 2
  nodes: 2
  gpus_per_node: 2
plan:
  cluster: "thisx4"
  response_mean: 8
  prompt_mean: 6
END2
mkdir "$work/bin"
ln -s "$hone" "$work/bin/hone"
job=$(PATH=$work/bin:$PATH at 1 sbatch --parsable -N2 --ntasks-per-node=2 -o "$work/dies.log" "$work/train.sbatch" "$work/recipe.yaml" $common trainer.steps=100000 \
    trainer.save_every=1 trainer.keep=2 trainer.run_dir="$work/dies" reward.library="$(dirname "$hone")/scorers/low_bytes.so")
for _ in $(seq 600); do [ -d "$work/dies/checkpoints/step-000002" ] && break; sleep 0.1; done
kill -9 "$(cat "$work/h2/slurmd.pid")"
for p in $(pgrep -f "^$hone train .*$work/dies|^slurmstepd"); do [ "$(nsenter -t "$p" -u hostname)" = h2 ] && kill -9 "$p"; done
for _ in $(seq 900); do grep -aq '^going on from' "$work/dies.log" && break; sleep 0.1; done
expect "a node of the batch script dies" "$work/dies.log" 'train.sbatch: 1 of 2 nodes are left: on 1, with .*grid.nodes=1'
expect "a node of the batch script dies" "$work/dies.log" '^going on from .*checkpoints/step-'
sleep 2
at 1 scancel --signal=USR1 "$job"
for _ in $(seq 300); do [ -z "$(at 1 squeue -h)" ] && break; sleep 0.1; done
expect "it is told to end" "$work/dies.log" 'told to stop after step [0-9]+ of 100000; saved'
the_end
