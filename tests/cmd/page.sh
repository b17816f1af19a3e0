#!/bin/bash
# page.sh - `hone page` by HTTP alone: what it answers of a whole, a live, a cut, a damaged and an empty run; who is
# refused; requests that are slow, huge or none; and trainer.page, which changes no byte of a run and ends with it.
#   bash tests/cmd/page.sh build/hone
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
. tests/cmd/train_common.bash
cd "$work" || exit 1
make_run() { python3 "$repo/tests/page_run.py" "$@" || { echo "no run"; exit 1; }; }
make_run whole 300 40 8
make_run live 20 40 4
make_run damaged 30 40 4 --hostile
mkdir empty
cat >break.py <<'END'
import sys
m = open("damaged/metrics.jsonl").read().split("\n")
m[5] = m[5][:40]; m[9] = "\x00\xff garbage"; m[12] = m[12].replace('"critic/score/mean":0', '"critic/score/mean":NaN 0'); m.insert(20, '{"step":3,"again":1}')
open("damaged/metrics.jsonl", "w", encoding="latin-1").write("\n".join(m))
s = open("damaged/samples.jsonl", "rb").read().split(b"\n")
s[3] = s[3][:30]; s[7] = s[7][:-20] + b"\xff\xfe"; s[11] = b"[" * 100000; s[13] = b'{"step":1e99}'
open("damaged/samples.jsonl", "wb").write(b"\n".join(s))
open("damaged/config.yaml", "w").write("a: [1, {b: \n - x")
open("damaged/status.json", "w").write('{"state":["failed"],"steps":"many"}')
open("damaged/samples_tokens.bin", "wb").write(b"x" * 100)
END
python3 break.py

"$hone" page whole live damaged empty --port 0 >url 2>err &
child=$!
for _ in $(seq 500); do [ -s url ] && break; kill -0 $child || break; sleep 0.02; done
expect "the address" url '^http://127\.0\.0\.1:[0-9]+/#t=[0-9a-f]{32}$'
for r in whole live damaged empty; do cmp -s url $r/page.url; ok $? "$r/page.url is not what was printed"; done
[ "$(stat -c %a whole/page.url)" = 600 ]; ok $? "page.url is not the owner's alone"

python3 - "$(cat url)" "$repo/tests/page_ask.py" <<'END'
import sys
exec(open(sys.argv[2]).read())
END
rc=$?
counts=$(cat counts 2>/dev/null || echo "0 1")
passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
[ $rc = 0 ]; ok $? "the questions ended with $rc"
kill -0 $child 2>/dev/null; ok $? "the page died: $(cat err)"
[ ! -s err ]; ok $? "the page said $(cat err)"

# ---- a port that is taken; the token of before; an end without a word
port=$(sed -E 's/.*:([0-9]+)\/.*/\1/' url)
"$hone" page whole --port "$port" >out 2>&1
[ $? = 1 ]; ok $? "a second page on the same port"
expect "a port that is taken" out "^hone page: 127\.0\.0\.1 port $port: cannot listen: .*; name another with --port$"
kill $child
wait $child
ok $? "told to end, it ended with $?"
"$hone" page whole --port 0 >again &
child=$!
for _ in $(seq 500); do [ -s again ] && break; kill -0 $child || break; sleep 0.02; done
[ "$(sed 's/.*#//' again)" = "$(sed 's/.*#//' url)" ]; ok $? "another token: a page that was open does not go on"
kill $child
wait $child 2>/dev/null
child=""

# ---- wrong command lines
"$hone" page nothing >out 2>&1
[ $? = 1 ]; ok $? "a folder that is not there"
expect "a folder that is not there" out '^hone page: nothing: there is no such folder$'
"$hone" page url >out 2>&1
expect "a file" out '^hone page: url: is a file; name the folder of a run$'
"$hone" page whole --listen somewhere >out 2>&1
[ $? = 2 ]; ok $? "a name to listen on"
"$hone" page whole --listen 203.0.113.7 --port 0 >out 2>&1
expect "an address of elsewhere" out 'cannot listen'

# ---- trainer.page: the same bytes with and without it, and it is gone when the run is
make_model
make_sums 20
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
p=$(free_port)
train plain trainer.steps=3 trainer.save_every=3
train paged trainer.steps=3 trainer.save_every=3 trainer.page="$p" 
ok $? "a run with a page: $(tail -1 paged.log)"
same_run plain paged 3 "with a page and without"
expect "where the page is" paged/log.txt "a page of this run is on port $p"
cmp -s plain/samples_tokens.bin paged/samples_tokens.bin; ok $? "the tokens differ"
sed -E 's/"(pid|time)":[0-9]+//g' paged/status.json >status
expect "how it ended" status '"state":"done","step":3,"steps":3'
expect "what the planner predicts" paged/predicted.json '^\{"rollout":[0-9.e-]+,"reference":0(\.0)?,"update":[0-9.e-]+,"sync":'
no_page() { ! pgrep -f "page $work/$1 --port" >/dev/null; }
no_page paged; ok $? "the page of a run that ended is there"
start killed trainer.steps=100000 trainer.page="$p" &
child=$!
wait_lines killed 2
for _ in $(seq 500); do [ -f killed/page.url ] && break; sleep 0.02; done
pgrep -f "page $work/killed --port" >/dev/null; ok $? "there is no page beside a run"
kill -9 $child
wait $child 2>/dev/null
child=""
for _ in $(seq 500); do no_page killed && break; sleep 0.02; done
no_page killed; ok $? "the page of a run that was killed is there"
start shot trainer.steps=100000 trainer.page="$p" & # its own end is a warning
child=$!
for _ in $(seq 1000); do [ -f shot/page.url ] && break; sleep 0.02; done
kill -9 "$(pgrep -f "page $work/shot --port")"
for _ in $(seq 1000); do grep -q 'the page of this run has ended (signal 9' shot/log.txt && break; sleep 0.02; done
expect "a page that was killed" shot/log.txt 'the page of this run has ended \(signal 9'
before=$(lines shot/metrics.jsonl)
wait_lines shot $((before + 2))
kill -0 $child 2>/dev/null; ok $? "the run ended with its page"
kill -TERM $child
wait $child
ok $? "a run whose page was killed: $?"
child=""
expect "told to stop" shot/status.json '"state":"stopped"'
python3 -c 'import socket, sys, time; s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); print("on", flush=True); time.sleep(600)' "$p" >busy &
child=$!
for _ in $(seq 500); do [ -s busy ] && break; sleep 0.02; done
train taken trainer.steps=40 trainer.page="$p"
ok $? "a run whose page's port is taken: $(tail -1 taken.log)"
expect "why there is no page" taken/log.txt "hone page: 127\.0\.0\.1 port $p: cannot listen"
kill $child
wait $child 2>/dev/null
child=""

# ---- alerts: in the log, and told the command
train low trainer.steps=2 data.max_response_length=2 rollout.ignore_eos=true 'trainer.alert_command=cat >>'"$work"'/alerts'
expect "an alert in the log" low/log.txt 'alert at step 1 \(clipped\): 100 % of the answers are cut at their limit'
for _ in $(seq 500); do [ -s alerts ] && break; sleep 0.02; done
expect "an alert that is told" alerts '^\{"run":".*/low","step":1,"rule":"clipped","level":"warn","text":"100 % of the answers'
the_end
