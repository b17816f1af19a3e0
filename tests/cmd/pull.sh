#!/bin/bash
# pull.sh - `hone pull` and hub: in a configuration, against a hub on this machine that does what the real one does:
# redirects to storage, ranges, refusals, cut connections, wrong bytes, several who want the same at once.
#   bash tests/cmd/pull.sh build/hone
command -v python3 >/dev/null || { echo "0 passed, 0 failed, 1 skipped (there is no python3)"; exit 0; }
. tests/cmd/train_common.bash
[ -e /usr/lib/*/libcurl.so.4 ] || ldconfig -p | grep -q 'libcurl[^ ]*\.so\.4' || { echo "0 passed, 0 failed, 1 skipped (there is no libcurl)"; exit 0; }
cd "$work" || exit 1
make_model
make_sums 16
r=root/models/org/tiny
mkdir -p $r root/datasets/org/sums/data root/models/org/{cut,gguf,two,own,bin}
cp model/* $r
echo "# hello" >$r/README.md
echo x >$r/pytorch_model.bin
cp sums.jsonl root/datasets/org/sums/data/train.jsonl
head -4 sums.jsonl >root/datasets/org/sums/data/test.jsonl
cp model/config.json model/tokenizer* root/models/org/cut
python3 - model/model.safetensors root/models/org/cut <<'END' # the same weights in two files
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head, body = json.loads(data[8:8 + n]), data[8 + n:]
head.pop("__metadata__", None)
names, where = sorted(head), {}
for i, part in enumerate((names[::2], names[1::2])):
    out, at, file = {}, 0, f"model-0000{i + 1}-of-00002.safetensors"
    for k in part:
        a, b = head[k]["data_offsets"]
        out[k] = {**head[k], "data_offsets": [at, at + b - a]}
        at, where[k] = at + b - a, file
    text = json.dumps(out).encode()
    with open(f"{sys.argv[2]}/{file}", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(body[slice(*head[k]["data_offsets"])] for k in part))
json.dump({"weight_map": where}, open(f"{sys.argv[2]}/model.safetensors.index.json", "w"))
END
echo g >root/models/org/gguf/a.Q8_0.gguf
cp model/tokenizer.json root/models/org/gguf
echo g | tee root/models/org/two/{a,b}.gguf >/dev/null
echo b >root/models/org/bin/pytorch_model.bin
cp model/config.json root/models/org/own
touch root/models/org/own/empty.txt
serve() { # from now on with this file of faults
    [ -n "$child" ] && kill $child
    printf '%s\n' "$@" >root/faults
    : >log
    rm -f url
    python3 "$repo/tests/hub/hub_server.py" root log >url &
    child=$!
    disown
    for _ in $(seq 500); do [ -s url ] && break; sleep 0.02; done
    HF_ENDPOINT=$(cat url)
}
export HF_ENDPOINT HF_HOME=$work/hf
unset HF_TOKEN
blobs=hf/hub/models--org--tiny/blobs
pull() { "$hone" pull "$@" >out 2>err; }
no() { # no PATTERN ARGUMENT...: refused in one line
    local want=$1
    shift
    pull "$@"
    [ $? = 1 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qE -- "^hone pull: .*$want" err
    ok $? "pull $*: no '$want' in $(cat err out)"
}
served() { grep -c "^storage GET /$1" log; }

# ---- a model: what is needed, checked, in the hub's own layout; nothing twice
serve ""
pull org/tiny
ok $? "pull: $(cat err)"
snap=$(cat out)
expect "its folder" out "hf/hub/models--org--tiny/snapshots/[0-9a-f]{40}$"
[ ! -s err ]; ok $? "what is quick says nothing: $(cat err)"
for f in model.safetensors config.json tokenizer.json; do cmp -s "$snap/$f" model/$f; ok $? "$f came as something else"; done
[ ! -e "$snap/README.md" ] && [ ! -e "$snap/pytorch_model.bin" ]; ok $? "what is not needed was fetched"
[ "$(readlink "$snap/model.safetensors")" = "../../blobs/$(sha256sum <model/model.safetensors | cut -c1-64)" ]; ok $? "the link is $(readlink "$snap/model.safetensors")"
[ "$(cat hf/hub/models--org--tiny/refs/main)" = "${snap##*/}" ]; ok $? "refs/main"
[ -z "$(find hf -name '*.incomplete')" ]; ok $? "a part was left"
: >log
pull org/tiny copy
ok $? "into a folder: $(cat err)"
[ "$(wc -l <log)" = 1 ]; ok $? "the second time: $(cat log)"
[ copy/model.safetensors -ef "$snap/model.safetensors" ] && [ ! copy/config.json -ef "$snap/config.json" ]; ok $? "weights are links, small files are not"
"$hone" inspect copy >seen 2>&1; ok $? "its result loads: $(cat seen)"
: >log
pull "org/tiny@${snap##*/}"
[ $? = 0 ] && [ ! -s log ]; ok $? "a commit that is there asked: $(cat log)"
"$hone" pull org/tiny --json >out 2>err
python3 -c "import json; j = json.load(open('out')); assert j['fetched'] == 0 and len(j['files']) >= 3 and j['commit'] == '${snap##*/}'"
ok $? "--json: $(cat out)"
pull org/tiny --include '*.md,config*' --exclude 'tok*' only
ok $? "--include: $(cat err)"
[ "$(ls only)" = "$(printf 'README.md\nconfig.json')" ] || [ "$(ls only | tr '\n' ' ')" = "README.md config.json " ] || [ "$(ls only | tr '\n' ' ')" = "config.json README.md " ]
ok $? "--include took $(ls only)"
pull org/cut
ok $? "shards: $(cat err)"
[ "$(ls "$(cat out)"/*.safetensors | wc -l)" = 2 ] && "$hone" inspect "$(cat out)" >/dev/null; ok $? "shards"
pull org/gguf
[ $? = 0 ] && [ "$(ls "$(cat out)")" = a.Q8_0.gguf ]; ok $? "one GGUF file: $(cat err)"
pull org/own --include '*.txt'
[ $? = 0 ] && [ -e "$(cat out)/empty.txt" ] && [ ! -s "$(cat out)/empty.txt" ]; ok $? "an empty file: $(cat err)"
pull --dataset org/sums
[ $? = 0 ] && cmp -s "$(cat out)/data/train.jsonl" sums.jsonl; ok $? "a data set: $(cat err)"

# ---- what cannot be had
no "several GGUF files: choose one with --include \(a.gguf, b.gguf\)" org/two
no "has no safetensors, but pytorch_model.bin" org/bin
no "answers 401: it is not there, or is private" org/nothing
no "has no revision 'v9'" org/tiny@v9
no "has no file '\*.onnx'; it has" org/tiny --include '*.onnx'
"$hone" pull tiny >out 2>err; [ $? = 2 ]; ok $? "exit code"; expect "a name" err "names no repository: ORG/NAME"
"$hone" pull ../etc/x >out 2>err; [ $? = 2 ]; ok $? "a path"
"$hone" inspect org/other >out 2>err; expect "inspect says how" err '`hone pull org/other` fetches it'
printf 'org/own right\norg/gguf gated\n' >root/tokens
no "401: .*--token or HF_TOKEN" org/own@v1 --include config.json
no "the token is wrong" org/own@v1 --include config.json --token nonsense
no "accepted its terms \(403\)" org/gguf@v1 --token right
pull org/own@v1 --include config.json --token right
ok $? "with a token: $(cat err)"
HF_TOKEN=right pull org/own@v1 --include config.json
ok $? "with HF_TOKEN: $(cat err)"
echo right >hf/token
pull org/own@v1 --include config.json
ok $? "with the file of a login: $(cat err)"
rm -rf hf/hub
pull org/tiny
grep -q "^hub .*Bearer_right" log && ! grep -q "^storage .*Bearer" log; ok $? "the token went to storage, or not to the hub: $(cat log)"
rm hf/token root/tokens

# ---- cut, refused for now, wrong
all=$(stat -c %s model/model.safetensors)
rm -rf hf
serve "model.safetensors cut:100000 cut:1 503 cut:0 429 ok" "config.json 503 ok" "list 503 429 ok"
pull org/tiny
ok $? "cut and refused: $(cat err)"
cmp -s "$(cat out)/model.safetensors" model/model.safetensors; ok $? "what was cut is something else"
grep -q "bytes=100000-" log && grep -q "bytes=100001-" log; ok $? "it did not go on where it ended: $(cat log)"
for fault in wrong longer norange wrongrange; do
    rm -rf hf
    case $fault in wrong | longer) first=$fault ;; *) first="cut:5000 $fault" ;; esac
    serve "model.safetensors $first ok"
    pull org/tiny
    [ $? = 0 ] && cmp -s "$(cat out)/model.safetensors" model/model.safetensors; ok $? "$fault once: $(cat err)"
done
rm -rf hf
serve "model.safetensors wrong wrong"
no "model.safetensors of org/tiny: its bytes are not those" org/tiny
[ ! -e "$(echo $blobs/*)" ] || ! ls $blobs | grep -q "$(sha256sum <model/model.safetensors | cut -c1-64)$"; ok $? "wrong bytes were kept"
serve "model.safetensors longer longer"
no "longer than the hub tells" org/tiny
rm -rf hf
serve "config.json $(yes loop | head -20 | tr '\n' ' ')"
no "redirected again and again" org/tiny
rm -rf hf
serve "model.safetensors 404"
no "model.safetensors: not on .* \(404\)" org/tiny
rm -rf hf
mkdir -p $blobs
head -c 70000 model/model.safetensors >$blobs/"$(sha256sum <model/model.safetensors | cut -c1-64).incomplete"
serve ""
pull org/tiny
[ $? = 0 ] && grep -q "^storage .* 206 bytes=70000-" log && [ "$(served models/org/tiny/model)" = 1 ]; ok $? "a part of before: $(cat err log)"
cmp -s "$(cat out)/model.safetensors" model/model.safetensors; ok $? "a part of before makes another file"

# ---- a hub that says strange things
for strange in '{"sha":"x"}' '[]' '{"sha":"60e0fd44b34d799a313cfbd636fa3e954a0217a9","siblings":[{"rfilename":"../../x","size":1,"blobId":"60e0fd44b34d799a313cfbd636fa3e954a0217a9"}]}' 'no JSON'; do
    echo "$strange" >root/listing
    no "not a hub's answer" org/tiny
done
rm root/listing

# ---- no hub: what was fetched before
serve ""
HF_ENDPOINT=http://127.0.0.1:9 pull org/tiny
[ $? = 0 ] && grep -q "what was fetched before is taken" err; ok $? "without a hub: $(cat err out)"
HF_ENDPOINT=http://127.0.0.1:9 no "127.0.0.1:9" org/cut
no "is not whole in" org/cut --local
pull org/tiny --local
ok $? "--local: $(cat err)"

# ---- several at once: one fetches
rm -rf hf
serve ""
for i in 1 2 3 4; do "$hone" pull org/tiny >out.$i 2>err.$i & pids[i]=$!; done
for i in 1 2 3 4; do wait ${pids[i]}; ok $? "one of several: $(cat err.$i)"; done
[ "$(served models/org/tiny/model)" = 1 ] && [ "$(sort -u out.[1-4] | wc -l)" = 1 ]; ok $? "fetched $(served models/org/tiny/model) times"

# ---- in a configuration, by one process and by ranks
rm -rf hf
: >log
run() { # run NAME KEY=VALUE...
    local name=$1
    shift
    $launch "$hone" train model.path=hub:org/tiny "data.train_files=[hub:org/sums:data/train.jsonl]" data.train_batch_size=4 rollout.n=2 \
        data.max_prompt_length=16 data.max_response_length=4 train.micro_tokens=64 trainer.threads=1 trainer.device=cpu trainer.steps=1 \
        reward.library="$(dirname "$hone")/scorers/low_bytes.so" trainer.run_dir="$work/$name" "$@" >"$name.log" 2>&1
}
run one
ok $? "train on hub: $(tail -2 one.log)"
expect "what it is" one.log "model.path: hub:org/tiny is commit [0-9a-f]{40}"
run none model.path=hub:org/nothing
[ $? = 1 ]; ok $? "exit code"; expect "no such model" none.log "^hone train: model.path: org/nothing: the hub answers 401"
run split "data.train_files=[hub:org/sums]"
[ $? = 1 ]; ok $? "exit code"; expect "two splits" split.log "has 2 files: name those of one split"
if command -v mpirun >/dev/null && [ -f "$(dirname "$hone")/libhone_mpi.so" ]; then
    rm -rf hf
    : >log
    export ASAN_OPTIONS=detect_leaks=0
    launch="mpirun --allow-run-as-root --oversubscribe -n 2" run two
    ok $? "two ranks: $(tail -2 two.log)"
    [ "$(served models/org/tiny/model)" = 1 ]; ok $? "two ranks fetched $(served models/org/tiny/model) times"
    [ "$(grep -c "hub:org/tiny is commit" two.log)" = 1 ]; ok $? "two ranks say it $(grep -c "hub:org/tiny is commit" two.log) times"
else skipped=$((skipped + 1)); fi
the_end
