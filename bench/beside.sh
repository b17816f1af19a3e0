#!/bin/sh
# beside.sh WHAT [ARGUMENTS] - builds, then runs bench/peers/WHAT.py with the Python of a virtual environment
# (bench/README.md says how to make it): $VENV, or /tmp/venv-bench.  WHAT "build" only builds.
set -e
cd "$(dirname "$0")/.."
[ -n "$BENCH_LOGS" ] || { # fair.sh has built
    cmake -S . -B build -G Ninja > /dev/null
    ninja -C build hone bench_adamw bench_decode bench_train_step bench_turns \
        hone_avx2 bench_adamw_avx2 bench_decode_avx2 bench_train_step_avx2 bench_turns_avx2 > /dev/null
}
[ "$1" != build ] || exit 0
what=$1
shift
exec "${VENV:-/tmp/venv-bench}/bin/python" "bench/peers/$what.py" "$@"
