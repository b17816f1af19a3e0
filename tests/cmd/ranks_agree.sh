#!/bin/bash
# ranks_agree.sh - ranks that do not run one and the same thing do not start: the first difference is named, with the
# rank and both values, before anything is trained or written; what may differ by machine (threads, paths) is no
# difference.  What a run that goes on meets changed is told.
#   bash tests/cmd/ranks_agree.sh build/hone
. tests/cmd/train_common.bash
need_ranks
make_model
make_sums 8
for a in 1 2 3 4 5 6 7 8; do echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}'; done >"$work/pairs.jsonl"
printf 'def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return len(solution_str) %% 2\n' >"$work/score.py"
"$hone" random "$repo/recipes/quickstart/model" "$work/other" --seed 4 >/dev/null

# Two machines are two working folders: what a configuration names by a relative path may be another file in each.
machine() { # machine NAME
    mkdir -p "$work/$1"
    cp -r "$work/model" "$work/sums.jsonl" "$work/pairs.jsonl" "$work/score.py" "$work/$1"
}
machine one
train="model.path=model data.train_files=[sums.jsonl] data.train_batch_size=4 rollout.n=2 data.max_prompt_length=16 data.max_response_length=4 reward.python=score.py"
sft="model.path=model data.train_files=pairs.jsonl sft.batch_size=8 sft.max_length=32"
both="train.micro_tokens=64 trainer.threads=1 trainer.device=cpu trainer.steps=1 trainer.tensorboard=false trainer.wait_seconds=60"
eval="model sums.jsonl --device cpu --max-tokens 4 --python score.py --threads 1"
score="model --in $work/lines.jsonl --device cpu --threads 1"
generate="$score --max-tokens 2"
echo '{"tokens":[1,5,9]}' >"$work/lines.jsonl"
two() { # two LOG FOLDER "VERB ARGUMENTS" "OF THE SECOND": the first rank in folder one, the second in FOLDER
    mpirun --allow-run-as-root --oversubscribe -n 1 -wdir "$work/one" "$hone" $3 : -n 1 -wdir "$work/$2" "$hone" $4 >"$work/$1.log" 2>&1
}
run="$both trainer.run_dir=$work/RUN"
n=0 patterns=()
apart() { # apart PATTERN FOLDER "VERB ARGUMENTS" "OF THE SECOND": begun, four at once, each with a run folder of its own
    local name=apart$((n++))
    patterns+=("$1")
    { two $name "$2" "${3//RUN/$name}" "${4//RUN/$name}"; echo $? >"$work/$name.rc"; } &
    [ $((n % 4)) != 0 ] || wait
}
judge() { # what came of them
    wait
    for ((i = 0; i < n; i++)); do
        local log="$work/apart$i.log"
        [ "$(cat "$work/apart$i.rc")" != 0 ] && [ "$(grep -c '^hone' "$log")" = 1 ] && grep -qE "^hone [a-z]+: ${patterns[$i]}" "$log"
        ok $? "no '${patterns[$i]}': $(cat "$log")"
        [ ! -s "$work/apart$i/metrics.jsonl" ]
        ok $? "${patterns[$i]}: something was trained"
    done
}

# ---- one that ends before the other begins, and ends well: MPI alone would wait for ever
(cd "$work/one" && mpirun --allow-run-as-root --oversubscribe -n 1 sh -c "sleep 0.5; exec '$hone' train $train $run trainer.wait_seconds=1" : -n 1 true >"$work/begun.log" 2>&1)
[ $? = 1 ] && [ "$(grep -c '^hone' "$work/begun.log")" = 1 ] && grep -q '^hone: of 2 ranks not all have begun within 1 s' "$work/begun.log" && [ ! -e "$work/RUN" ]
ok $? "the other has ended: $(cat "$work/begun.log")"

# ---- another configuration, another verb
while read -r set pattern; do
    apart "$pattern" one "train $train $run" "train $train $run $set" </dev/null
done <<'END_OF_SETTINGS'
trainer.seed=5 rank 1 has trainer.seed 5, rank 0 1: .*all ranks
train.lr=0.5 rank 1 has train.lr 0.5, rank 0 1e-6: .*all ranks
rollout.temperature=0.5 rank 1 has rollout.temperature 0.5, rank 0 1.0: .*all ranks
train.loss_agg=seq-mean-token-sum rank 1 has train.loss_agg seq-mean-token-sum, rank 0 token-mean: .*all ranks
trainer.steps=2 rank 1 has trainer.steps 2, rank 0 1: .*all ranks
trainer.run_dir=elsewhere rank 1 does not see elsewhere: the folder must be one for all
END_OF_SETTINGS
apart 'rank 1 has verb sft, rank 0 train: ' one "train $train $run" "sft $sft $run"
apart 'rank 1 has verb score, rank 0 generate: ' one "generate $generate" "score $score"
apart 'rank 1 has train.lr 0.5, rank 0 1e-6: ' one "sft $sft $run" "sft $sft $run train.lr=0.5"
apart 'rank 1 has --top-p 0.9, rank 0 1: ' one "generate $generate" "generate $generate --top-p 0.9"

# ---- other files behind the same path
machine data
sed 's/"ground_truth":"3"/"ground_truth":"4"/' "$work/sums.jsonl" >"$work/data/sums.jsonl"
sed 's/#### 4/#### 5/' "$work/pairs.jsonl" >"$work/data/pairs.jsonl"
machine model_file
cp "$work/other/model.safetensors" "$work/model_file/model"
machine scorer
echo >>"$work/scorer/score.py"
machine tokenizer
sed 's/"version"/ "version"/' "$work/model/tokenizer.json" >"$work/tokenizer/model/tokenizer.json"
machine template
for f in "$work/template/model/chat_template.jinja" "$work/template/model/tokenizer_config.json"; do
    [ -f "$f" ] && grep -q . "$f" && echo >>"$f" && break
done
# One bit of a weight where no sample looks: found when it was loaded, by ranks that hold the same.
flipped() { # flipped FOLDER TENSOR
    machine "$1"
    python3 - "$work/$1/model/model.safetensors" "$2" <<'END_OF_PYTHON'
import json, struct, sys
with open(sys.argv[1], "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    at = 8 + n + json.loads(f.read(n))[sys.argv[2]]["data_offsets"][1] - 4
    f.seek(at)
    b = f.read(1)[0]
    f.seek(at)
    f.write(bytes([b ^ 1]))
END_OF_PYTHON
}
flipped weight model.layers.1.mlp.experts.3.up_proj.weight
flipped norm model.norm.weight
read_other() { echo "rank 1 has read other bytes of ${1//./[.]} than rank 0: the files of model are not the same"; }
for verb in train sft; do
    apart "$(read_other 'model.layers.1.mlp.experts.[*].up_proj.weight')" weight "$verb ${!verb} $run" "$verb ${!verb} $run"
done
apart "$(read_other model.norm.weight)" norm "train $train $run grid.tp=2" "train $train $run grid.tp=2"
apart "$(read_other 'model.layers.1.mlp.experts.[*].up_proj.weight')" weight "generate $generate" "generate $generate"
apart "$(read_other model.norm.weight)" norm "score $score --grid tp=2" "score $score --grid tp=2"
for verb in train sft; do
    apart 'rank 1 has training data 8 rows, [0-9a-f]{16}, rank 0 8 rows, [0-9a-f]{16}: ' data "$verb ${!verb} $run" "$verb ${!verb} $run"
    apart 'rank 1 has model.safetensors .*, rank 0 .*: ' model_file "$verb ${!verb} $run" "$verb ${!verb} $run"
    apart 'rank 1 has tokenizer.json .*, rank 0 .*: ' tokenizer "$verb ${!verb} $run" "$verb ${!verb} $run"
done
apart 'rank 1 has validation data 8 rows, .*, rank 0 8 rows, .*: ' data "train $train $run data.val_files=[$work/sums.jsonl]" \
    "train $train $run data.train_files=[$work/sums.jsonl] data.val_files=[sums.jsonl]"
apart 'rank 1 has (chat_template.jinja|tokenizer_config.json) .*, rank 0 .*: ' template "train $train $run" "train $train $run"
apart 'rank 1 has the scorer .*, rank 0 .*: ' scorer "train $train $run" "train $train $run"
apart 'rank 1 has the scorer .*, rank 0 .*: ' scorer "eval $eval" "eval $eval"
apart 'rank 1 has data 8 rows, .*, rank 0 .*: ' data "eval $eval" "eval $eval"
apart 'rank 1 has model.safetensors .*, rank 0 .*: ' model_file "generate $generate" "generate $generate"

judge

# ---- what may differ: threads, and where things lie
cp -r "$work/one" "$work/two" && mv "$work/two/model" "$work/two/m" && mv "$work/two/sums.jsonl" "$work/two/s.jsonl" && mv "$work/two/score.py" "$work/two/r.py"
run=${run//RUN/run}
two fine two "train $train $run" "train $train $run trainer.threads=2 model.path=m data.train_files=[s.jsonl] reward.python=r.py trainer.run_dir=../run"
ok $? "other threads and paths: $(cat "$work/fine.log")"
[ "$(lines "$work/run/metrics.jsonl")" = 1 ]
ok $? "other threads and paths: no step was done"
[ -f "$work/run/lock" ] && [ ! -e "$work/run/.ranks" ]
ok $? "the ranks' mark stays: $(ls -a "$work/run")"

# ---- going on, and what has changed meanwhile
kl="train.use_kl_loss=true"
(cd "$work/one" && "$hone" train $train $both $kl trainer.run_dir="$work/kept") >"$work/kept.log" 2>&1
ok $? "a run with a reference: $(tail -1 "$work/kept.log")"
(cd "$work/one" && "$hone" train $train $both $kl trainer.run_dir="$work/kept" trainer.steps=2) >"$work/kept.log" 2>&1
! grep -q 'was saved' "$work/kept.log"
ok $? "nothing changed, but something is told: $(cat "$work/kept.log")"
machine changed
cp "$work"/{scorer/score.py,model_file/model/model.safetensors} "$work/changed"
mv "$work/changed/model.safetensors" "$work/changed/model"
cp "$work/tokenizer/model/tokenizer.json" "$work/changed/model"
(cd "$work/changed" && "$hone" train $train $both $kl trainer.run_dir="$work/kept" trainer.steps=3) >"$work/kept.log" 2>&1
ok $? "going on with other files: $(tail -1 "$work/kept.log")"
for what in 'the scorer' 'tokenizer.json' 'the reference model'; do
    expect "going on" "$work/kept.log" "^$what is another than when .*step-000002 was saved"
done
[ "$(grep -c 'was saved' "$work/kept.log")" = 3 ]
ok $? "what changed is told $(grep -c 'was saved' "$work/kept.log") times: $(cat "$work/kept.log")"
(cd "$work/changed" && "$hone" train $train $both $kl trainer.run_dir="$work/kept" trainer.steps=3 trainer.seed=2 data.seed=1) >"$work/kept.log" 2>&1
[ $? = 0 ] && grep -q 'trainer.seed 1 -> 2' "$work/kept.log" && ! grep -q 'was saved' "$work/kept.log"
ok $? "with another seed the places of samples are the checkpoint's: $(cat "$work/kept.log")"
# A checkpoint of before files were kept: manifest.json agrees with the shorter state.json (gzip ends with the CRC-32).
state="$work/kept/checkpoints/step-000003/state.json"
grep -q '"looked":1,"found":{"config.json":"' "$state"
ok $? "state.json does not keep what was found: $(cat "$state")"
sed -i -E 's/,"looked":1,"found":\{[^}]*\}//' "$state"
read -r crc bytes < <(gzip -c "$state" | tail -c 8 | od -An -t u4)
sed -i -E 's/("state.json":)\{[^}]*\}/\1{"bytes":'$bytes',"crc32":'$crc'}/' "${state%/*}/manifest.json"
(cd "$work/one" && "$hone" train $train $both $kl trainer.run_dir="$work/kept" trainer.steps=4) >"$work/kept.log" 2>&1
[ $? = 0 ] && grep -q 'going on from .*step-000003' "$work/kept.log" && ! grep -qE 'was saved|passed over' "$work/kept.log"
ok $? "an older checkpoint: $(cat "$work/kept.log")"
the_end
