#!/bin/bash
# gguf.sh - a GGUF file where a model's folder may be, and where one is written: the same ids, log-probs and answers from
# both, over ranks too, training from one; what cannot be written or read is one line.   bash tests/cmd/gguf.sh build/hone
. tests/cmd/train_common.bash
alike() { # alike WHAT FILE FILE
    cmp -s "$2" "$3"
    ok $? "$1: $(cmp "$2" "$3" 2>&1 | head -1)"
}
one_line() { # one_line WHAT SAYS COMMAND...
    local what=$1 says=$2 rc
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    rc=$?
    grep -v 'computing on the CPU' "$work/err" >"$work/line"
    [ $rc != 0 ] && [ "$(wc -l <"$work/line")" = 1 ] && grep -q -- "$says" "$work/line"
    ok $? "$what: $rc, $(head -3 "$work/line")"
}
# The quickstart's model with a tokenizer that llama.cpp has a name for: the same bytes, cut as GPT-2 does.
"$hone" random recipes/quickstart/model "$work/m" --seed 3 >/dev/null 2>&1
chmod -R u+w "$work/m"
one_line "a tokenizer without a name" "has no name for the way" "$hone" convert "$work/m" "$work/x.gguf"
[ ! -e "$work/x.gguf" ]
ok $? "nothing is left"
sed -i 's/"use_regex": *false/"use_regex":true/' "$work/m/tokenizer.json"
"$hone" convert "$work/m" "$work/m.gguf" --modelfile 2>"$work/err"
ok $? "convert to GGUF: $(cat "$work/err")"
grep -qx 'FROM ./m.gguf' "$work/Modelfile"
ok $? "a Modelfile"
echo '{"text": "7+8+9 = <|im_end|> x"}' >"$work/text"
echo '{"messages": [{"role": "user", "content": "7+8"}]}' >"$work/ask"
for m in m m.gguf; do
    "$hone" tokenize "$work/$m" --in "$work/text" --special >"$work/ids.$m" 2>/dev/null
    "$hone" template "$work/$m" --in "$work/ask" >"$work/chat.$m" 2>/dev/null
    "$hone" generate "$work/$m" --in "$work/ask" --out "$work/said.$m" --n 2 --max-tokens 8 --seed 5 2>/dev/null
    ok $? "generate from $m"
done
alike "ids" "$work"/ids.m{,.gguf}
alike "templates" "$work"/chat.m{,.gguf}
alike "answers and their log-probs" "$work"/said.m{,.gguf}
"$hone" inspect "$work/m.gguf" | grep -q 'F32'
ok $? "inspect"
# A run from one is the run from the folder; what it leaves is a folder, or a GGUF file again.
make_sums 16
for m in m m.gguf; do
    train "run.$m" model.path="$work/$m" trainer.steps=2 trainer.save_every=2
    ok $? "a run from $m: $(tail -1 "$work/run.$m.log")"
done
alike "the model after two steps" "$work"/run.m{,.gguf}/checkpoints/step-000002/model/model.safetensors
"$hone" export "$work/run.m.gguf" "$work/after.gguf" >"$work/out" 2>&1 && "$hone" export "$work/run.m" "$work/after" >>"$work/out" 2>&1
ok $? "export: $(cat "$work/out")"
for m in after after.gguf; do
    "$hone" generate "$work/$m" --in "$work/ask" --out "$work/said.$m" --n 2 --max-tokens 8 --seed 5 2>/dev/null
done
alike "answers of what was exported" "$work"/said.after{,.gguf}
# Every family of ours: there and back to the same bytes of weights, in its order; log-probs from the file itself.
for f in llama mixtral qwen2 qwen3 qwen3_moe; do
    m=tests/data/models/$f
    echo '{"tokens": [1, 5, 9, 2, 7, 3]}' >"$work/tokens"
    "$hone" convert $m "$work/$f.gguf" --dtype f32 2>"$work/err" && "$hone" convert "$work/$f.gguf" "$work/$f" --dtype f32 2>>"$work/err" \
        && "$hone" convert $m "$work/$f.own" --dtype f32 2>>"$work/err"
    ok $? "$f: $(cat "$work/err")"
    alike "$f there and back" "$work/$f/model.safetensors" "$work/$f.own/model.safetensors"
    "$hone" score $m --in "$work/tokens" >"$work/a" 2>/dev/null && "$hone" score "$work/$f.gguf" --in "$work/tokens" >"$work/b" 2>/dev/null
    ok $? "score $f"
    alike "log-probs of $f" "$work/a" "$work/b"
done
# Over two ranks each reads its own slices: rows of heads that stand in turns, columns that begin inside a block.
command -v mpirun >/dev/null && over="llama mixtral" || { over="" skipped=8; }
for f in $over; do
    "$hone" convert tests/data/models/$f "$work/$f.q8.gguf" --dtype q8_0 2>/dev/null
    for g in "$work/$f.gguf" "$work/$f.q8.gguf"; do
        "$hone" score "$g" --in "$work/tokens" --grid tp=1 >"$work/a" 2>"$work/err"
        mpirun --allow-run-as-root --oversubscribe -n 2 "$hone" score "$g" --device cpu --in "$work/tokens" --grid tp=2 >"$work/b" 2>>"$work/err"
        ok $? "score over two ranks: $(grep -v 'computing on' "$work/err" | head -2)"
        python3 - "$work/a" "$work/b" <<'P'
import json, sys
a, b = (json.load(open(f))["logprobs"] for f in sys.argv[1:3])
sys.exit(max(abs(x - y) for x, y in zip(a, b)) > 1e-4)
P
        ok $? "the same log-probs from two ranks, $g"
    done
done
# Ends.
head -c 100000 "$work/m.gguf" >"$work/cut.gguf"
one_line "cut off, a file" "it is cut off" "$hone" generate "$work/cut.gguf" --in "$work/ask"
mkdir "$work/d.gguf"
one_line "a folder that ends so" "is a folder, and a GGUF file is meant" "$hone" convert "$work/m" "$work/d.gguf" --force
one_line "there already" "is there already" "$hone" convert "$work/m" "$work/m.gguf"
one_line "itself" "is the model itself" "$hone" convert "$work/m.gguf" "$work/m.gguf" --force
one_line "a type that is not written" "q8_0" "$hone" convert "$work/m" "$work/y.gguf" --dtype q4_k
one_line "a family without a name" "are not written as GGUF files" "$hone" convert tests/data/models/moonlight "$work/y.gguf"
the_end
