#!/bin/sh
# products.sh [ARGUMENTS] - builds, then runs bench/peers/products.py with the Python of a virtual environment
# (bench/README.md says how to make it): $VENV, or /tmp/venv-bench.
set -e
cd "$(dirname "$0")/.."
cmake -S . -B build -G Ninja > /dev/null
ninja -C build bench_turns > /dev/null
exec "${VENV:-/tmp/venv-bench}/bin/python" bench/peers/products.py "$@"
