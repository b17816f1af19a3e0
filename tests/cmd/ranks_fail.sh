#!/bin/bash
# ranks_fail.sh - a few of the failures of tests/all/ranks_fail.sh, which has every phase.
#   bash tests/cmd/ranks_fail.sh build/hone
exec bash tests/all/ranks_fail.sh "$1" short
