#!/bin/bash
# escapes.sh - nothing in data, answers or file names steers the terminal: what hone writes for people shows control
# characters as text, C1's and those that turn the direction of writing too.  JSON escapes its own.
#   bash tests/cmd/escapes.sh build/hone
. tests/cmd/train_common.bash
make_model
cd "$work" || exit 1
steers() { LC_ALL=C grep -qaP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]' "$1"; } # but for \t and \n
quiet() { # quiet WHAT FILE: there is text, and nothing that steers
    [ -s "$2" ] && ! steers "$2"
    ok $? "$1: $(cat -v "$2" | head -5)"
}
evil='a\u001b[31mred\u001b]0;title\u0007\r\b\u007f\u009b2J\u202eback\u2066 \u00e9\n\ttab'
mkdir run
printf '{"step":1,"odd\\u001b[2J/name":1,"critic/score/mean":0.5}\n{"step":2,"odd\\u001b[2J/name":1,"critic/score/mean":1}\n' >run/metrics.jsonl
printf '{"step":1,"input":"%s","output":"%s","gts":"%s","score":1}\n' "$evil" "$evil" "$evil" >run/samples.jsonl
printf '{"prompt":"%s","col\\u001b[2Jumn":1,"nested":{"%s":"%s"},"list":["%s"],"data_source":"%s"}\n' "$evil" "$evil" "$evil" "$evil" "$evil" \
    >$'odd\e[2J.jsonl'
"$hone" show run >out 2>&1 && quiet show out && "$hone" show run --list >out 2>&1 && quiet "show --list" out
ok $? "show: its exit code"
"$hone" show run --samples 1 >out 2>&1
expect "what steers is seen, as text" out 'a\\x1b\[31mred\\x1b\]0;title\\x07\\x0d\\x08\\x7f\\u009b2J\\u202eback\\u2066 é'
"$hone" compare run run >out 2>&1 && quiet compare out
ok $? "compare: its exit code"
for what in show stats; do
    "$hone" data $what *.jsonl >out 2>&1
    ok $? "data $what: its exit code"
    quiet "data $what" out
done
"$hone" data show *.jsonl >out 2>&1
expect "data show: text" out 'a\\x1b\[31mred'
"$hone" data show *.jsonl --columns "$(printf 'no\e[2J')" >out 2>&1
quiet "an error that quotes a column" out
"$hone" data show $'no\e[2J\xc2\x9b2J\xe2\x80\xae' >out 2>&1
quiet "an error that quotes a file" out
"$hone" data show *.jsonl --json >out
grep -q 'a\\u001b\[31mred' out
ok $? "data show --json: $(cat -v out)"

# chat: bytes of a model that was never trained, in a terminal (whose own line ends are \r\n) with questions from a
# pipe, and through a pipe.
"$hone" chat model --max-tokens 400 --seed 1 <<<hello >piped 2>/dev/null
steers piped
ok $? "this model says nothing that steers: another seed is needed"
script -qec "echo hello | '$hone' chat model --max-tokens 400 --seed 1" /dev/null </dev/null 2>&1 | tr -d '\r' >out
quiet "chat in a terminal" out
cmp -s <(tr -d '\r' <piped) out
[ $? = 1 ]
ok $? "chat through a pipe is not the text itself"
the_end
