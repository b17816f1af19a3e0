#!/bin/bash
# memory.sh - the memory of a run is known before it is taken, is taken at the start, and does not grow: not with steps,
# saves, validation, a reference model or ReMax's answers.  A save takes its buffer and no second copy of the model.
#   bash tests/cmd/memory.sh build/hone [quick|normal|all]
. tests/cmd/train_common.bash
mkdir "$work/config"
cp recipes/quickstart/model/* "$work/config"
sed -E -e 's/("hidden_size": )[0-9]+/\1384/' -e 's/("num_hidden_layers": )[0-9]+/\16/' -e 's/("intermediate_size": )[0-9]+/\11536/' \
    recipes/quickstart/model/config.json >"$work/config/config.json"
"$hone" random "$work/config" "$work/model" --seed 3 >/dev/null || { echo "no model"; exit 1; }
make_sums 324
peak() { sed -nE 's/.*"perf\/cpu_memory_peak_gb":([0-9.e+-]+).*/\1/p' "$work/$1/metrics.jsonl" | sed -n "$2p"; } # peak RUN LINE, in GB
planned() { sed -nE 's/^  the process +planned +([0-9.]+) MB, peak +([0-9.]+) MB.*/\1/p' "$work/$1.log"; }
told() { sed -nE 's/^  the process +planned +([0-9.]+) MB, peak +([0-9.]+) MB.*/\2/p' "$work/$1.log"; }
holds() { awk "BEGIN { exit !($1) }"; }

bytes=$(stat -c %s "$work/model/model.safetensors") # 4 a parameter
run() { # run NAME KEY=VALUE...: its peak grows by no more than 3 MB after the first step, and lies near the plan
    local name=$1 first last most
    shift
    train "$name" trainer.steps=4 trainer.save_every=1 trainer.save_buffer=4000000 data.max_response_length=24 "$@"
    ok $? "$name: $(tail -1 "$work/$name.log")"
    first=$(peak "$name" 1) last=$(peak "$name" '$') most=$(told "$name")
    echo "$name: planned $(planned "$name") MB, peak after step 1 $first GB, after the last $last GB, at the end $most MB"
    holds "$last <= $first + 0.003 && $most <= 1000 * $first + 3"
    ok $? "$name: the peak grew from $first GB to $last GB and $most MB"
    holds "$most <= 1.03 * $(planned "$name") + 60" # the program, its tables, huge pages that are not full
    ok $? "$name: planned $(planned "$name") MB, but the peak is $most MB"
    holds "$most >= 0.95 * $(planned "$name")"
    ok $? "$name: planned $(planned "$name") MB, which is far above the peak of $most MB"
}
run plain
run reference train.use_kl_loss=true
"$hone" convert "$work/model" "$work/model16" --dtype bf16 >/dev/null
run reference16 train.use_kl_loss=true model.path="$work/model16" # the reference is kept as the files have it
holds "$(planned reference) - $(planned reference16) >= 0.49 * $bytes / 1e6"
ok $? "a reference in BF16 is planned as large as one in float32: $(planned reference16) and $(planned reference) MB"
run remax algo.advantage=remax "data.val_files=[$work/sums.jsonl]" data.val_max_samples=48 trainer.val_every=2 rollout.val.n=4 rollout.val.temperature=1
run whole trainer.save_buffer=0
holds "$(told whole) - $(told plain) >= 2.9 * $bytes / 1e6 - 4"
ok $? "a buffer for everything is $(told whole) MB beside $(told plain) MB: of $bytes bytes of weights three times that was expected"
"$hone" plan "$work/model" --recipe "$work/plain/config.yaml" --mean 12 --prompt-mean 8 >"$work/plan.log" 2>&1
all=$(sed -nE 's/^in all +([0-9.]+) of .*/\1/p' "$work/plan.log")
holds "$all >= 0.99 * $(planned plain) && $all <= 1.04 * $(planned plain)" # it loads with all threads, the run with one
ok $? "hone plan counts $all MB, the run $(planned plain)"
run plain # once more, going on from its checkpoint: reading it takes no more
the_end
