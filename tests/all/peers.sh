#!/bin/bash
# peers.sh - hone beside the programs it must agree with: transformers, pyarrow, pandas, polars, DuckDB, math-verify,
# TensorBoard, gguf.  They come from virtual environments: VENV=DIR[:DIR...], each looked through for what is needed; what is
# in none is skipped.
#   VENV=/path/to/venv bash tests/all/peers.sh build/hone [DIR]
. tests/cmd/train_common.bash
beside() { # beside WHAT MODULES SCRIPT ARGUMENTS...
    local what=$1 modules=$2 dir rc line p f s
    shift 2
    for dir in ${VENV//:/ }; do
        if "$dir/bin/python" -c "import $modules" 2>/dev/null; then
            "$dir/bin/python" "$@" >"$work/out" 2>"$work/err" </dev/null
            rc=$?
            line=$(grep -E '^[0-9]+ passed, ' "$work/out" | tail -1)
            read -r p _ f _ s _ <<<"${line//,/}"
            if [ -n "$line" ]; then passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)); fi
            [ $rc = 0 ] || [ "${f:-0}" != 0 ] || failed=$((failed + 1))
            [ $rc != 0 ] || [ -n "$line" ] || passed=$((passed + 1))
            if [ $rc != 0 ]; then echo "FAILED: $what"; grep FAILED "$work/out" | head -5; tail -3 "$work/err"; fi
            echo "$what: $(tail -1 "$work/out")"
            return
        fi
    done
    skipped=$((skipped + 1))
    echo "skipped: $what (no environment in VENV has $modules)"
}
beside "models opened by transformers" "torch, transformers" bench/peers/transformers_models.py "$hone" runs/quickstart-1
beside "GGUF, both ways" gguf bench/peers/gguf_bits.py "$hone"
beside "Parquet of every writer" "pyarrow, pandas, polars, duckdb" bench/peers/parquet_matrix.py "$hone"
beside "math_exact and math-verify" "math_verify" bench/peers/math_verify_pairs.py "$hone"
make_model
make_sums 81
train run trainer.steps=4 trainer.save_every=2
ok $? "a run of 4 steps: $(tail -1 "$work/run.log")"
beside "event files" "tensorboard" bench/peers/tensorboard_reads.py "$work/run"
the_end
