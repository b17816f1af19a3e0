#!/bin/bash
# ranks_rollout.sh - reinforcement learning over ranks, the long way: weights between 60 random pairs of grids; 250,000 tokens sampled on each of
# several grids and scored on others, experts that rows went to included; quickstart's task in eight pairs of grids; a run on 4 ranks killed twenty times.  ./check --all does
# a part of each.  PARTS: only these; GRIDS: only so many of a list, from that on ("3 2": the fourth and the fifth).
#   TOKENS=250000 STEPS=320 KILLS=20 SYNCS=60 [PARTS="sync tokens learn kills"] [GRIDS="0 8"] bash tests/all/ranks_rollout.sh build/hone
. tests/cmd/train_common.bash
command -v mpirun >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no mpirun)"; exit 0; }
export ASAN_OPTIONS=detect_leaks=0
on() { # on N VERB ARGUMENT...
    local n=$1
    shift
    if [ "$n" = 1 ]; then "$hone" "$@"; else mpirun --allow-run-as-root --oversubscribe -n "$n" "$hone" "$@"; fi
}
made() { sed -n "s|.*\"$2\":\([^,}]*\).*|\1|p" "$work/$1/metrics.jsonl"; }
recipe=""
run_as() { # run_as RUN N KEY=VALUE...: in place of this shell
    local run=$1 n=$2 under=""
    shift 2
    [ "$n" = 1 ] || under="mpirun --allow-run-as-root --oversubscribe -n $n"
    exec $under "$hone" train $recipe trainer.device=cpu trainer.threads=1 trainer.peak_tflops=0.1 trainer.tensorboard=false trainer.exact_every=1 \
        trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}

read -r first count <<<"${GRIDS:-0 8}"
asked() { [ "$1" -ge "$first" ] && [ "$1" -lt $((first + count)) ]; } # asked K
part() { [[ " ${PARTS:-sync tokens learn kills} " == *" $1 "* ]]; }

# ---- weights between cuts
if part sync; then
    "$(dirname "$hone")/tests/sync/test_sync" "${SYNCS:-20}" >"$work/sync" 2>&1
    ok $? "test_sync: $(grep -a FAILED "$work/sync" | cut -c1-400 | head -20)"
    echo "${SYNCS:-20} pairs of grids: $(tail -1 "$work/sync")"
fi

# ---- the same answers on every grid, and the trainer's log-probs on others
make_model
if part tokens; then
    lines=$((${TOKENS:-10000} / 4 / 32 + 1))
    awk -v n=$lines 'BEGIN { srand(7); for (i = 0; i < n; i++) { k = int(rand() * 24) + 1; printf "{\"id\":%d,\"tokens\":[", i;
        for (j = 0; j < k; j++) printf "%s%d", j ? "," : "", int(rand() * 256); print "]}" } }' >"$work/prompts.jsonl"
    logprobs() { grep -oE '"logprobs":\[[^]]*\]' "$1" | sed 's/.*\[//; s/\]//'; }
    differ() { # differ ANSWERS SCORES: of how many answers the log-probs are not the last ones of the scores
        paste -d' ' <(logprobs "$1") <(logprobs "$2") | awk '{ n = split($1, a, ","); m = split($2, b, ","); bad = n < 1 || m < n
            for (i = 1; i <= n; i++) bad = bad || a[i] != b[m - n + i]
            sum += bad; lines++ } END { print lines ? sum + 0 : "all" }'
    }
    sample() { on "$1" generate "$work/model" --device cpu --threads 1 --in "$work/prompts.jsonl" --n 4 --max-tokens 32 --ignore-eos --top-p 0.95 --out "$2" "${@:3}"; }
    noting() { # noting FILE COMMAND...: and which experts rows went to (tests/shim/routes.c), each row and router once
        ROUTES=$1 hone=$(dirname "$hone")/shims/hone_routes "${@:2}"
        cat "$1".* | LC_ALL=C sort -u >"$1"
        rm -f "$1".*
    }
    missing() { LC_ALL=C comm -23 "$1" "$2" | wc -l; } # missing FILE FILE: lines of the first that the other has not
    sample 1 "$work/answers.jsonl" 2>"$work/err"
    ok $? "one rank: $(cat "$work/err")"
    k=0 tokens=$(logprobs "$work/answers.jsonl" | tr -cd ',\n' | wc -c)
    for both in "2 tp=2 pp=2" "2 dp=2 tp=2" "4 tp=2,dp=2,ep=4 pp=2,tp=2,ep=2" "4 dp=4,ep=4 cp=2,tp=2" "8 tp=2,dp=4,ep=8 tp=2,pp=2,ep=4,vpp=2" "8 tp=4,dp=2 dp=8,ep=2,etp=4"; do
        set -- $both
        asked $((k++)) || continue
        noting "$work/sampled" sample "$1" "$work/many.jsonl" --grid "$2" --max-batch 40 2>"$work/err"
        cmp -s "$work/answers.jsonl" "$work/many.jsonl"
        ok $? "sampled on $1 ranks, $2: not one rank's answers: $(head -c 300 "$work/err")"
        noting "$work/scored" on "$1" score "$work/model" --device cpu --threads 1 --in "$work/many.jsonl" --out "$work/scores.jsonl" --top-p 0.95 --grid "$3" 2>"$work/err"
        n=$(differ "$work/many.jsonl" "$work/scores.jsonl")
        [ "$n" = 0 ]
        ok $? "$1 ranks: sampled on $2, scored on $3: log-probs differ: $(head -c 300 "$work/err")"
        other=$(missing "$work/sampled" "$work/scored") rows=$(wc -l <"$work/sampled")
        [ "$other" = 0 ] && [ "$rows" -gt "$tokens" ]
        ok $? "$1 ranks: sampled on $2, scored on $3: $other of $rows routes differ"
        sed -i '1s/.$/x/' "$work/sampled"
        [ "$(missing "$work/sampled" "$work/scored")" = 1 ]
        ok $? "$1 ranks: a route of another kind was not seen"
        echo "$tokens tokens sampled on $2 and scored on $3, $1 ranks: log-probs of $n answers of $((4 * lines)) differ, $other of $rows routes"
    done
fi

# ---- quickstart's task
if part learn; then
    quick=$repo/recipes/quickstart
    awk -v dir="$work" 'BEGIN { x = 7936; for (i = 0; i < 1000; i++) q[i] = i
        for (i = 999; i > 0; i--) { x = (x * 16807) % 2147483647; j = x % (i + 1); t = q[i]; q[i] = q[j]; q[j] = t }
        split("0 0 0 1 1 -1 -1 2 2 -2", slip, " ")
        for (i = 0; i < 1000; i++) { a = int(q[i] / 100); b = int(q[i] / 10) % 10; c = q[i] % 10
            prompt = sprintf("[{\"role\":\"user\",\"content\":\"%d+%d+%d\"}]", a, b, c)
            printf "{\"data_source\":\"openai/gsm8k\",\"prompt\":%s,\"reward_model\":{\"ground_truth\":\"%d\"}}\n", prompt, a + b + c > (dir (i < 200 ? "/held_out.jsonl" : "/questions.jsonl"))
            for (k = 0; k < 3 && i >= 200; k++) { x = (x * 16807) % 2147483647; said = a + b + c + slip[x % 10 + 1]
                printf "{\"prompt\":%s,\"response\":\"#### %d\"}\n", prompt, (said < 0 ? 0 : said) > (dir "/taught.jsonl") } } }'
    "$hone" sft "$quick/sft.yaml" model.path="$work/model" data.train_files="[$work/taught.jsonl]" trainer.run_dir="$work/sft" trainer.device=cpu >"$work/log" 2>&1 &&
        "$hone" export "$work/sft" "$work/taught" >>"$work/log" 2>&1
    ok $? "taught: $(tail -1 "$work/log")"
    steps=${STEPS:-4} k=0
    recipe=$quick/grpo.yaml
    grpo="model.path=$work/taught data.train_files=[$work/questions.jsonl] data.val_files=[$work/held_out.jsonl] trainer.steps=$steps"
    learn() { (run_as "$1" "$2" $grpo "${@:3}"); }
    for grid in "1" "2" "2 grid.tp=2 rollout.grid.tp=2" "2 grid.pp=2 rollout.grid.tp=2" "4 grid.ep=4 rollout.grid.dp=4 rollout.grid.ep=4" \
        "4 grid.tp=2 grid.pp=2 rollout.grid.dp=2 rollout.grid.ep=2" "8 grid.tp=2 grid.cp=2 grid.ep=2 rollout.grid.tp=4" \
        "4 grid.tp=2 grid.etp=2 rollout.grid.tp=1 train.use_kl_loss=true train.kl_loss_coef=0.001"; do
        set -- $grid
        run=quick$((k++))
        asked $((k - 1)) || continue
        learn $run "$@"
        ok $? "$grid: $(tail -2 "$work/$run.log")"
        all_exact $run
        ok $? "$grid: a step is not exact"
        echo "$grid: held-out accuracy $(made $run val-core/score/mean | head -1) -> $(made $run val-core/score/mean | tail -1)," \
            "$(made $run exact/tokens | awk '{ n += $1 } END { print n }') tokens compared in $(made $run exact/tokens | wc -l) steps"
        [ $steps -lt 320 ] || awk -v x="$(made $run val-core/score/mean | tail -1)" 'BEGIN { exit !(x > 0.9) }'
        ok $? "$grid: it did not learn"
    done
    if [ -d "$work/quick5" ]; then
        learn again 4 grid.tp=2 grid.pp=2 rollout.grid.dp=2 rollout.grid.ep=2
        same_run quick5 again $steps "the same grid twice"
    fi
fi

# ---- killed on 4 ranks
part kills || the_end
make_sums 324
recipe=""
steps=12 all="model.path=$work/model data.train_files=[$work/sums.jsonl] data.train_batch_size=4 rollout.n=4 data.max_prompt_length=16 data.max_response_length=12
    train.micro_tokens=128 train.lr=1e-3 reward.library=$(dirname "$hone")/scorers/low_bytes.so trainer.steps=$steps trainer.save_every=1 trainer.keep=99 trainer.samples=16"
four="grid.tp=2 grid.pp=2 rollout.grid.tp=2"
(run_as whole 4 $all $four)
ok $? "never killed: $(tail -1 "$work/whole.log")"
kills=0
while [ $kills -lt "${KILLS:-4}" ]; do
    before=$(lines "$work/killed/metrics.jsonl")
    run_as killed 4 $all $four &
    child=$!
    case $((RANDOM % 3)) in
    0) sleep $((RANDOM % 3)).$((RANDOM % 10)) ;;
    1) wait_lines killed $((before + 1)) ;;
    2) while ! compgen -G "$work/killed/checkpoints/.writing-*" >/dev/null && kill -0 $child 2>/dev/null; do :; done ;;
    esac
    victims=$(pgrep -P $child) # the ranks: one of them, or the launcher
    [ $((RANDOM % 2)) = 0 ] && [ -n "$victims" ] && victim=$(shuf -n1 -e $victims) || victim=$child
    kill -9 $victim 2>/dev/null && kills=$((kills + 1))
    { wait $child; } 2>/dev/null
    child=""
    while pgrep -f "trainer.run_dir=$work/killed " >/dev/null; do sleep 0.1; done
    for s in 11 12; do [ -d "$work/killed/checkpoints/step-0000$s" ] && rm -rf "$work/killed/checkpoints/step-0000$s"; done # over too soon: back
    [ -d "$work/killed/checkpoints" ] && [ -z "$(ls "$work/killed/checkpoints")" ] && rm -rf "$work/killed"
done
cp -r "$work/killed" "$work/other" 2>/dev/null
(run_as killed 4 $all $four)
ok $? "after $kills kills: $(tail -1 "$work/killed.log")"
same_run whole killed $steps "after $kills kills"
echo "$kills kills on 4 ranks"
apart() { # apart FILE FILE: two checkpoints' weights: how many, how many are apart by more than 1e-5, the largest difference
    paste <(od -An -v -tf4 -w4 "$1") <(od -An -v -tf4 -w4 "$2") | awk '$1 != $2 { d = $1 - $2; if (d < 0) d = -d; off += d > 1e-5; if (d > most) most = d }
        END { print NR, off + 0, most + 0 }'
}
read -r weights off most <<<"$(apart "$work"/whole/checkpoints/step-0000{09,12}/model/model.safetensors)"
[ "$off" -gt $((weights / 2)) ]
ok $? "three steps moved $off of $weights weights"
for n in 8 2 1; do # from there on, on other numbers of ranks: the same questions, weights as close as ten updates on other grids are
    cp -r "$work/whole" "$work/on$n" && rm -rf "$work/on$n"/checkpoints/step-00001[0-2]
    (run_as on$n $n $all $([ $n = 1 ] || echo grid.tp=2))
    ok $? "gone on with on $n: $(tail -1 "$work/on$n.log")"
    cmp -s <(grep -oE '"step":[0-9]+,"row":[0-9]+' "$work/whole/samples.jsonl" | sort -u) <(grep -oE '"step":[0-9]+,"row":[0-9]+' "$work/on$n/samples.jsonl" | sort -u)
    ok $? "gone on with on $n: other questions"
    read -r weights off most <<<"$(apart "$work"/{whole,on$n}/checkpoints/step-000012/model/model.safetensors)"
    awk -v n="$weights" -v off="$off" -v most="$most" 'BEGIN { exit !(n > 0 && off <= 0.001 * n && most <= 2 * 0.001 * 3) }'
    ok $? "gone on with on $n: $off of $weights weights are apart by more than 1e-5, one by $most"
    echo "three steps on $n ranks: $off of $weights weights apart by more than 1e-5, the farthest by $most"
done
the_end
