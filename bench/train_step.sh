#!/bin/sh
# train_step.sh [ARGUMENTS] - builds, then runs bench/peers/train_step.py with the Python of a virtual environment
# (bench/README.md says how to make it): $VENV, or /tmp/venv-bench.
set -e
cd "$(dirname "$0")/.."
cmake -S . -B build -G Ninja > /dev/null
ninja -C build hone bench_train_step > /dev/null
exec "${VENV:-/tmp/venv-bench}/bin/python" bench/peers/train_step.py "$@"
