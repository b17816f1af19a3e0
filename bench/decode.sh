#!/bin/sh
# decode.sh [ARGUMENTS] - builds, then runs bench/peers/decode.py with the Python of a virtual environment
# (bench/README.md says how to make it): $VENV, or /tmp/venv-bench.
set -e
cd "$(dirname "$0")/.."
cmake -S . -B build -G Ninja > /dev/null
ninja -C build hone bench_decode > /dev/null
exec "${VENV:-/tmp/venv-bench}/bin/python" bench/peers/decode.py "$@"
