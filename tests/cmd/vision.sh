#!/bin/bash
# vision.sh - pictures through the commands: generate, score, chat, data, train.  bash tests/cmd/vision.sh build/hone
hone=$(realpath "$1")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
recipe=recipes/quickstart-vision
"$hone" random $recipe/model/config.json "$tmp/model" --seed 1 >/dev/null 2>&1 && cp $recipe/model/*.json "$tmp/model/"
cp tests/data/vision/{photo,half,same,wide,palette}.png tests/data/vision/{jpeg420.jpg,lossy.webp,drawn.gif} "$tmp"
cd "$tmp" || exit 1

# ---- generate: a path, base64 and another batch give the same answers; other pictures give others
turn() { # turn QUESTION PICTURE...
    local q=$1 parts=""
    shift
    for p; do parts="$parts{\"type\":\"image\",\"image\":\"$p\"},"; done
    echo "{\"messages\":[{\"role\":\"user\",\"content\":[$parts{\"type\":\"text\",\"text\":\"$q\"}]}]}"
}
{ turn "which colour?" photo.png; turn "which colour?" "data:image/png;base64,$(base64 -w0 photo.png)"; turn "where is it?" half.png photo.png
  turn "where is it?" photo.png half.png; turn "how many squares?" same.png wide.png jpeg420.jpg lossy.webp; turn "which colour?" half.png; turn "which colour?"
  turn "how many squares?" photo.png photo.png; } >in.jsonl
gen() { "$hone" generate model --in in.jsonl --n 3 --seed 5 --max-tokens 24 "$@" 2>>log; }
gen --out a.jsonl
ok $([ "$(wc -l <a.jsonl)" = 24 ] && ! grep -q error a.jsonl; echo $?) "answers to prompts with pictures: $(grep error a.jsonl | head -1)"
lp() { sed -n "$1p" a.jsonl | sed 's/.*"logprobs":\(\[[^]]*\]\).*/\1/'; }
ok $(cmp -s <(sed -n 1,3p a.jsonl) <(sed -n 4,6p a.jsonl); echo $?) "a path and base64 give the same answers"
ok $([ "$(lp 7)" != "$(lp 10)" ]; echo $?) "two pictures of one size that change places change log-probs"
ok $([ "$(lp 1)" != "$(lp 16)" ]; echo $?) "another picture of one size gives other log-probs"
for how in "--max-batch 1" "--max-rows 5" "--page 16 --max-rows 7" "--page 16 --kv-tokens 256 --max-rows 9 --max-batch 8" "--threads 1"; do
    gen --out b.jsonl $how
    ok $(cmp -s a.jsonl b.jsonl; echo $?) "the same answers with $how"
done
tac in.jsonl >c.jsonl && mv in.jsonl keep.jsonl && mv c.jsonl in.jsonl && gen --out b.jsonl --max-rows 11
ok $(cmp -s <(sort a.jsonl) <(sort b.jsonl); echo $?) "the same answers in another order"
mv keep.jsonl in.jsonl
# one text behind two pictures of one size finds nothing of the other's pages; the same picture again finds its own
{ turn "which colour?" photo.png; turn "which colour?" half.png; } >in.jsonl
ok $("$hone" generate model --in in.jsonl --max-batch 1 --page 16 --max-tokens 2 --stats 2>&1 >/dev/null | grep -q ", 0 tokens found in the cache"; echo $?) "two pictures share no pages"
{ turn "which colour?" photo.png; turn "which colour?" photo.png; } >in.jsonl
ok $("$hone" generate model --in in.jsonl --max-batch 1 --page 16 --max-tokens 2 --stats 2>&1 >/dev/null | grep -q ", 16 tokens found in the cache"; echo $?) "a picture that comes again has its pages"

# ---- a picture's own limits: 84 x 56 pixels are 3 x 2 tokens of 32; 1, made 2 x 2 by the model's; 6 x 4; 3 x 2
own() { echo "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":\"same.png\"$1},{\"type\":\"text\",\"text\":\"q\"}]}]}"; }
{ own ""; own ',"max_pixels":2048'; own ',"min_pixels":20000'; own ',"resized_height":64,"resized_width":96'; } >in.jsonl
ok $([ "$("$hone" generate model --in in.jsonl --max-tokens 1 2>>log | grep -o '"prompt_length":[0-9]*' | cut -d: -f2 | tr '\n' ' ')" = "11 9 29 11 " ]; echo $?) "a picture's own limits"
# ---- clips: lists of frames; their order and their rate are seen, chunks and batches are not
clip() { echo "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"video\",\"video\":$1},{\"type\":\"text\",\"text\":\"where is it?\"}]}]}"; }
{ clip '["photo.png","photo.png","lossy.webp"]'; clip '["lossy.webp","photo.png","photo.png"]'; clip '["photo.png","photo.png","lossy.webp"],"fps":0.25'; } >in.jsonl
gen --out a.jsonl
gen --out b.jsonl --page 16 --max-rows 5 --max-batch 1
ok $([ "$(wc -l <a.jsonl)" = 9 ] && ! grep -q error a.jsonl && cmp -s a.jsonl b.jsonl; echo $?) "clips: $(grep error a.jsonl | head -1)"
ok $([ "$(lp 1)" != "$(lp 4)" ] && [ "$(lp 1)" != "$(lp 7)" ]; echo $?) "the order of frames and their rate count"

# ---- score: what was sampled is what is scored
turn "which colour?" photo.png >in.jsonl
gen --out all.jsonl --max-tokens 1 --n 8
grep -E '"text":"[a-z?1-4]"' all.jsonl | head -1 >a.jsonl # one that is text: the model may say a picture's place, too
said=$(sed 's/.*"text":"\([^"]*\)".*/\1/' a.jsonl)
sed "s/\]}\]}$/]},{\"role\":\"assistant\",\"content\":\"$said\"}]}/" in.jsonl >s.jsonl
got=$("$hone" score model --in s.jsonl 2>&1 | grep -oE '"logprobs":\[[^]]*' | tr ',[' '\n\n' | tail -2 | head -1)
ok $([ -n "$said" ] && [ "$got" = "$(grep -oE '"logprobs":\[[^],]*' a.jsonl | tr '[' '\n' | tail -1)" ]; echo $?) "score of a sampled token: $got, $(lp 1)"

ok $("$hone" score model --in all.jsonl 2>/dev/null | grep -c '"error":".*holds the place of a picture' | grep -qx 8; echo $?) "token ids without their picture are scored"

# ---- what must be refused, one line each
bad() { ok $("$hone" generate model --in in.jsonl 2>&1 | grep -q "\"error\":\"[^\"]*$1"; echo $?) "refused: $1"; }
turn q http://x/y.png >in.jsonl; bad "not fetched from a network"
turn q ../../etc/passwd >in.jsonl; bad "outside of\|no such picture"
turn q /etc/passwd >in.jsonl; bad "outside of"
turn q drawn.gif >in.jsonl; bad "this is a GIF"
turn q missing.png >in.jsonl; bad "there is no such picture"
turn q "data:image/png;base64,%%%" >in.jsonl; bad "in base64 that is none"
clip '"a.mp4"' >in.jsonl; bad "a clip must be a list of frames"
clip '["photo.png","wide.png"]' >in.jsonl; bad "frame 2 is"
clip '["photo.png"],"fps":0' >in.jsonl; bad "fps must be a number"
{ head -c 16 photo.png; printf '\0\0\x75\x30\0\0\x0b\x54'; tail -c +25 photo.png; } >vast.png # its head says 30000 x 2900
clip "[$(printf '"vast.png",%.0s' 1 2 3 4 5 6 7 8)\"vast.png\"]" >in.jsonl; bad "9 frames of 30000 x 2900; all together"
clip '["photo.png"],"nframes":4' >in.jsonl; bad "taken as they are given"
echo '{"messages":[{"role":"user","content":[{"type":"audio","audio":"a.wav"}]}]}' >in.jsonl; bad "sound is not taken here"
echo '{"messages":[{"role":"user","content":"which <|image_pad|> is it?"}]}' >in.jsonl; bad "1 places for pictures, and there are 0"
head -c 3000 photo.png >cut.png; turn q cut.png >in.jsonl; bad "a damaged PNG file"
mkdir plain && cp model/* plain/ && rm plain/preprocessor_config.json
turn "which colour?" photo.png >in.jsonl
ok $("$hone" generate plain --in in.jsonl 2>&1 | grep -q "preprocessor_config.json"; echo $?) "a model without preprocessor_config.json"
out=$(printf '/image photo.png\nwhich colour?\nwhere is it?\n/image nothing.png\n' | "$hone" chat model --max-tokens 2 2>&1)
ok $(grep -q "6 tokens; it goes with" <<<"$out" && grep -q "nothing.png: cannot open" <<<"$out"; echo $?) "chat: /image"

# ---- plan: pictures are counted, in a recipe too
vl=$OLDPWD/tests/data/configs/Qwen2.5-VL-7B.json
"$hone" plan $vl --cluster H100x8 --tp 2 --images 1 --image-size 1920x1080 --write planned.yaml --model-path $vl >log 2>&1
ok $(grep -q "2691 tokens each.*1.63e+04 GFLOP forward each, 6.06 a token" log; echo $?) "plan: $(grep -i picture log)"
ok $("$hone" plan --recipe planned.yaml 2>&1 | cmp -s <(grep "^step" log) <(grep "^step" -); echo $?) "plan: a recipe with pictures is planned again alike"
ok $("$hone" plan $vl --cluster H100x8 --images 1 --prompt-max 300 --prompt-mean 100 2>&1 | grep -q "pictures of 391 tokens are in them"; echo $?) "plan: pictures do not fit"
ok $("$hone" plan $OLDPWD/tests/data/models/qwen2/config.json --images 1 2>&1 | grep -q "take no pictures"; echo $?) "plan: a model without a tower"

# ---- data and training: exact on every step; killed and resumed; frozen
"$hone" data geo3k --in "$OLDPWD"/tests/data/vision/train-*.parquet --out geo.parquet >log 2>&1
"$hone" data show geo.parquet >got 2>&1
ok $(grep -q "images: (PNG, 42 x 70 pixels, 7034 bytes)" got && grep -q "ground_truth: 69.8" got && grep -q "split: train" got; echo $?) "data geo3k: $(cat log)"
"$hone" data shapes --out train.parquet --n 96 --seed 1 2>/dev/null
"$hone" data shapes --out held.parquet --n 32 --seed 2 2>/dev/null
ok $("$hone" data show train.parquet --n 1 | grep -q "images: (PNG, 64 x 64 pixels"; echo $?) "data show says sizes"
ok $("$hone" data stats train.parquet --model model 2>&1 | grep -qi "token"; echo $?) "data stats in tokens"
conf="$OLDPWD/$recipe/grpo.yaml model.path=model data.train_files=[train.parquet] data.val_files=[held.parquet] data.train_batch_size=16 trainer.val_every=0 trainer.save_every=3"
"$hone" train $conf trainer.run_dir=r1 trainer.steps=6 >log 2>&1
ok $? "train: $(tail -1 log)"
ok $(grep -q "largest difference of a log-prob 0, over" log; echo $?) "exact on every step"
"$hone" train $conf trainer.run_dir=r2 trainer.steps=6 >log2 2>&1 & pid=$!
for i in $(seq 200); do [ -d r2/checkpoints ] && ls r2/checkpoints 2>/dev/null | grep -q 3 && break; kill -0 $pid 2>/dev/null || break; sleep 0.05; done
kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
"$hone" train $conf trainer.run_dir=r2 trainer.steps=6 >log2 2>&1
"$hone" export r1 m1 >/dev/null 2>&1; "$hone" export r2 m2 >/dev/null 2>&1
ok $(cmp -s m1/model.safetensors m2/model.safetensors; echo $?) "killed and resumed it ends with the same bytes"
ok $([ -f m1/preprocessor_config.json ]; echo $?) "export carries preprocessor_config.json"
"$hone" train $conf trainer.run_dir=r3 trainer.steps=2 train.freeze_tower=true train.weight_decay=0.1 >log3 2>&1
"$hone" export r3 m3 >/dev/null 2>&1
ok $(grep -q "largest difference of a log-prob 0, over" log3; echo $?) "a frozen tower is exact too: $(tail -1 log3)"
for i in $(seq 12); do
    echo '{"prompt":"<image>which colour?","response":"1","images":["photo.png"]}'
    echo '{"prompt":"<image>which colour?","response":"2","images":["lossy.webp"]}'
    echo '{"prompt":"<video>where is it?","response":"3","videos":[{"video":["photo.png","lossy.webp"],"fps":1}]}'
done >pairs.jsonl
sft="sft model.path=model data.train_files=[pairs.jsonl] sft.batch_size=12 sft.max_length=64 train.micro_tokens=256 train.lr=3e-3 trainer.steps=12 trainer.threads=1"
"$hone" $sft trainer.run_dir=s1 >log 2>&1
ok $? "sft with pictures: $(tail -1 log)"
loss() { grep -o '"train/loss":[^,}]*' $1/metrics.jsonl | sed -n "$2p" | cut -d: -f2; }
ok $(awk -v a="$(loss s1 1)" -v b="$(loss s1 12)" 'BEGIN { exit !(b < a / 2 && b < 0.6) }'; echo $?) "sft learns to tell two pictures apart: $(loss s1 1) to $(loss s1 12)"
"$hone" $sft trainer.run_dir=s2 --memory 1 --all-ranks 2>/dev/null | grep -a '^rank ' | cmp -s - s1/memory.txt
ok $? "sft takes the memory that was counted"
"$hone" $sft trainer.run_dir=s3 train.freeze_tower=true >log 2>&1
ok $(grep -q '"train/loss"' s3/metrics.jsonl && [ "$(loss s3 1)" = "$(loss s1 1)" ] && [ "$(loss s3 12)" != "$(loss s1 12)" ]; echo $?) "sft with a frozen tower"
ok $("$hone" $sft trainer.run_dir=s4 sft.max_length=12 sft.truncation=left 2>&1 | grep -q "with pictures, which cannot be cut"; echo $?) "a pair with pictures is never cut"
# conversations: a pair's words learn as the pair does; a picture in a later turn keeps the mask in its place
sed -E 's/"prompt":"([^"]*)","response":"([^"]*)"/"talk":[{"role":"user","content":"\1"},{"role":"assistant","content":"\2"}]/' pairs.jsonl >talks.jsonl
"$hone" $sft trainer.run_dir=s5 data.train_files=[talks.jsonl] sft.messages_key=talk trainer.steps=1 >log 2>&1
ok $([ "$(loss s5 1)" = "$(loss s1 1)" ]; echo $?) "a conversation with a picture: loss $(loss s5 1), a pair's $(loss s1 1): $(tail -1 log)"
for i in $(seq 12); do
    echo '{"talk":[{"role":"user","content":"<image>which colour?"},{"role":"assistant","content":"1"},{"role":"user","content":"and <image>?"},{"role":"assistant","content":"2"}],"images":["photo.png","lossy.webp"]}'
done >turns.jsonl
"$hone" $sft trainer.run_dir=s6 data.train_files=[turns.jsonl] sft.messages_key=talk sft.max_length=128 >log 2>&1
ok $(awk -v b="$(loss s6 12)" 'BEGIN { exit !(b != "" && b < 0.2) }'; echo $?) "sft with a picture in each turn: loss $(loss s6 12), $(tail -1 log)"
ok $(grep -q '"train/learned_tokens":48[,}]' s6/metrics.jsonl; echo $?) "of 12 conversations 2 answers of a digit and an end are learned"
echo '{"data_source":"math_exact_flexible","prompt":[{"role":"user","content":"<image><image>which colour?"}],"images":["photo.png"],"reward_model":{"ground_truth":"1"}}' >few.jsonl
ok $("$hone" train $conf data.train_files=[few.jsonl] data.train_batch_size=1 trainer.run_dir=r4 2>&1 | grep -q "more <image> in the prompt than pictures"; echo $?) "<image> and pictures must agree"
ok $("$hone" train $conf model.path="$OLDPWD/tests/data/models/qwen2" trainer.run_dir=r5 2>&1 | grep -qE "no tokenizer|are not taken here"; echo $?) "a model without a tower takes no pictures"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
