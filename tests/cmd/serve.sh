#!/bin/bash
# serve.sh - `hone serve` as a client meets it, by Python's own HTTP (tests/serve/quick.py): answers are those of generate
# and score, whole, streamed, alone and among others; refusals; clients that leave; keys and a full line.
#   bash tests/cmd/serve.sh build/hone
. tests/cmd/train_common.bash
make_model
python3 tests/serve/quick.py "$hone" "$work/model"
