#!/bin/bash
# fair.sh [avx2|avx512|both] [quick] [WHAT ...] - every bar beside peers at their best, both sides held to one instruction
# set, then to the other; a table for each at the end: row, ours, the peer at its best, ratio, spread, bar.  WHAT: some of
# decode, adamw, products, moe, dense, generate, small, large.  Two free cores, some 35 minutes for all of it;
# quick: one round, and not of everything, to see that it works (a loaded machine will do).
#   VENV=DIR LOGS=DIR bash bench/fair.sh both      logs and tables are kept under LOGS, else a new folder; BENCH_BUSY=0:
#                                                  by the clock, whatever else seems to run
cd "$(dirname "$0")/.." || exit 1
sets="avx512 avx2" quick=""
while [ $# -gt 0 ]; do
    case $1 in
    avx2 | avx512) sets=$1 ;;
    both) ;;
    quick) quick=quick ;;
    *) break ;;
    esac
    shift
done
bash bench/beside.sh build || exit 1
export BENCH_LOGS=${LOGS:-$(mktemp -d)}
mkdir -p "$BENCH_LOGS"
export BENCH_BUSY # one answer for all scripts: by the clock, or by processor time
: "${BENCH_BUSY:=$(awk '/^cpu / { t = 0; for (i = 2; i <= 9; i++) t += $i; idle = $5 + $6
                  if (!all) { all = t; was = idle } else print (1 - (idle - was) / (t - all) > 0.25) }' <(cat /proc/stat; sleep 2; cat /proc/stat))}"
only=" $* "
all="decode adamw products moe dense generate small large"
tables() {
    for set in $sets; do
        echo
        echo "$set, $(date -u +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores, $([ "$BENCH_BUSY" = 1 ] && echo "OTHER PROGRAMS RUNNING: processor time" || echo "by the clock")${quick:+, ONE ROUND}"
        echo "| row | ours | peer at its best | ratio | spread | bar | |"
        echo "|---|---|---|---|---|---|---|"
        for name in $all; do grep -s '^| ' "$BENCH_LOGS/$set-$name.log"; done
    done | tee "$BENCH_LOGS/tables.md"
    echo
    echo "logs: $BENCH_LOGS, $((SECONDS / 60)) minutes"
    exit
}
trap tables INT TERM # what there is
measure() { # measure NAME SCRIPT ARGUMENTS: on each set, in neighbouring minutes
    [ "$only" = "  " ] || [ "${only/ $1 /}" != "$only" ] || return
    for set in $sets; do
        local log=$BENCH_LOGS/$set-$1.log began=$SECONDS lower=avx2
        [ $set = avx2 ] || lower=""
        timeout 1200 bash bench/beside.sh "${@:2}" $quick $lower >"$log" 2>"$log.err" </dev/null ||
            echo "| $1 | | | | | | not measured: $(tail -1 "$log.err" | tr '|' ' ' | cut -c 1-120) |" >>"$log"
        head -1 "$log" | grep '^[a-z_]*.py'
        grep '^| ' "$log"
        echo "    ($1, $set: $((SECONDS - began)) s)"
    done
}
measure decode decode bars
measure adamw adamw
measure products products
measure moe train_step moe
measure dense train_step dense
measure generate generate
measure small trl_grpo bars small
measure large trl_grpo bars large
tables
