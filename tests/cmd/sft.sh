#!/bin/bash
# sft.sh - `hone sft` as a user meets it: pairs and conversations, pairs that are too long, validation, resuming.
#   bash tests/cmd/sft.sh build/hone
. tests/cmd/train_common.bash
make_model
for a in 1 2 3 4 5 6 7 8; do
    echo '{"prompt":"'$a+$a'","response":"#### '$((a + a))'"}' >&3
    echo '{"talk":[{"role":"user","content":"'$a+$a'"},{"role":"assistant","content":"#### '$((a + a))'"}]}'
done 3>"$work/pairs.jsonl" >"$work/talks.jsonl"
sft() { (sft_start "$@"); } # sft RUN KEY=VALUE...
sft_start() { # in place of this shell
    local run=$1
    shift
    exec "$hone" sft model.path="$work/model" data.train_files="$work/pairs.jsonl" sft.batch_size=4 sft.max_length=32 train.micro_tokens=256 trainer.threads=1 train.lr=1e-3 \
        trainer.run_dir="$work/$run" "$@" >"$work/$run.log" 2>&1
}
said() { # said RUN CODE PATTERN
    [ "$2" = 1 ] && tail -1 "$work/$1.log" | grep -q "^hone sft: .*$3"
    ok $? "$1: exit code $2, $(tail -1 "$work/$1.log")"
}
tokens() { grep -oE '"train/tokens":[0-9]+' "$work/$1/metrics.jsonl" | head -1; }

# ---- pairs and the same as conversations: the same run
sft pairs trainer.steps=2
ok $? "pairs: $(tail -1 "$work/pairs.log")"
sft talks trainer.steps=2 data.train_files="$work/talks.jsonl" sft.messages_key=talk
ok $? "conversations: $(tail -1 "$work/talks.log")"
cmp -s "$work/pairs/checkpoints/step-000002/model/model.safetensors" "$work/talks/checkpoints/step-000002/model/model.safetensors"
ok $? "a pair and the conversation of the same words train differently"
sft mute trainer.steps=1 sft.messages_key=prompt
said mute $? 'pairs.jsonl line 1: prompt: a list of messages is wanted, not a string'

# ---- every answer of a conversation is learned, not the last alone
user() { echo '{"role":"user","content":"'$1'"}'; }
model() { echo '{"role":"assistant","content":"'$1'"'$2'}'; }
talk() { (IFS=,; echo '{"talk":['"$*"']}'); } # talk MESSAGE...
four() { for i in 1 2 3 4; do talk "$@"; done; }
learn() { # learn RUN KEY=VALUE...: of the conversations on standard input
    local run=$1
    shift
    cat >"$work/$run.jsonl"
    sft $run data.train_files="$work/$run.jsonl" data.val_files="$work/$run.jsonl" sft.messages_key=talk sft.max_length=64 "$@"
}
first=$(model ABCDEFGH) last=$(model Z)
four $(user 1+1) $first $(user 2+2) $last | learn both trainer.steps=40 train.lr=5e-3
ok $? "two answers: $(tail -1 "$work/both.log")"
"$hone" export "$work/both" "$work/learned" >/dev/null
echo '{"messages":['$(user 1+1)']}' | "$hone" generate "$work/learned" --in - --out "$work/said.jsonl" --max-tokens 12 --temperature 0.01 --threads 1 2>/dev/null
expect "the first answer is learned" "$work/said.jsonl" '"text":"ABCDEFGH"'
expect "tokens that are learned" "$work/both/metrics.jsonl" '"train/learned_tokens":44[,}]' # 4 times ABCDEFGH, Z and two ends

# what is learned of each alone adds up to both
four $(user 1+1) $(model ABCDEFGH ',"weight":0') $(user 2+2) $last | learn only-last trainer.steps=1
four $(user 1+1) $first $(user 2+2) $(model Z ',"train":false') | learn only-first trainer.steps=1
val_loss() { grep -m1 '"step":0' "$work/$1/metrics.jsonl" | grep -oE '"val/loss":[0-9.e+-]+' | cut -d: -f2; }
echo $(val_loss both) $(val_loss only-first) $(val_loss only-last) | awk '{ d = 11 * $1 - 9 * $2 - 2 * $3; exit !(NF == 3 && d * d < 1e-8) }'
ok $? "losses of both, the first, the last: $(val_loss both) $(val_loss only-first) $(val_loss only-last)"

# a user at the end changes nothing; with nothing to learn a row is refused; too long: said how many were cut
four $(user 1+1) $first | learn shorter trainer.steps=2
four $(user 1+1) $first $(user why) | learn longer trainer.steps=2
cmp -s "$work/shorter/checkpoints/step-000002/model/model.safetensors" "$work/longer/checkpoints/step-000002/model/model.safetensors"
ok $? "a question at the end changes what is learned"
{ four $(user 1+1) $first; talk $(user why) $(model so ',"train":false'); } | learn nothing trainer.steps=1
said nothing $? '1 conversations have no message to learn within sft.max_length, the first is .*nothing.jsonl, row 4'
four $(user why) | learn nobody trainer.steps=1
said nobody $? '4 conversations have no message to learn within sft.max_length, the first is .*nobody.jsonl, row 0'
four $(user 1+1) $first $(user 2+2) $last | learn cut trainer.steps=1 sft.max_length=7 sft.truncation=right
ok $? "cut: $(tail -1 "$work/cut.log")"
expect "cut conversations are counted" "$work/cut/log.txt" 'cut.jsonl: 4 conversations were cut to sft.max_length 7'
expect "what is left of them is learned" "$work/cut/metrics.jsonl" '"train/learned_tokens":8[,}]'

# a template that drops earlier thoughts: said; one that leaves a message out: refused
cat >"$work/thinks.jinja" <<'END'
{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|model|>' }}{{ m.content if loop.last else m.content.split('=')[-1] }}{% if m.role != 'user' %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}
END
four $(user 1+1) $(model 1+1=2) $(user 2+2) $(model 2+2=4) | learn thinks trainer.steps=1 model.chat_template="$work/thinks.jinja"
ok $? "thinks: $(tail -1 "$work/thinks.log")"
expect "messages that stand otherwise are counted" "$work/thinks/log.txt" 'thinks.jsonl: 4 of 8 messages stand otherwise'
echo '{% for m in messages %}{% if m.role != "tool" %}{{ m.content }}<|end|>{% endif %}{% endfor %}' >"$work/loses.jinja"
four $(user 1+1) $first '{"role":"tool","content":"5"}' $last | learn loses trainer.steps=1 model.chat_template="$work/loses.jinja"
said loses $? 'loses.jsonl, row 0: the chat template leaves message 2 out'

# ---- too long: refused; cut on either side; a prompt that leaves no room for its answer
sft long trainer.steps=1 sft.max_length=7
said long $? 'pairs.jsonl, row 0: .* tokens, but sft.max_length is 7'
for side in left right middle; do
    sft cut-$side trainer.steps=1 sft.max_length=7 sft.truncation=$side
    ok $? "$side: $(tail -1 "$work/cut-$side.log")"
done
[ "$(tokens cut-left)" = "$(tokens cut-right)" ]
ok $? "left and right keep another number of tokens: $(tokens cut-left) $(tokens cut-right)"
! cmp -s "$work/cut-left/checkpoints/step-000001/model/model.safetensors" "$work/cut-right/checkpoints/step-000001/model/model.safetensors"
ok $? "left and right cut the same tokens"
sft none trainer.steps=1 sft.max_length=4 sft.truncation=right
said none $? 'no pair of prompt and answer is left'

# ---- validation at the start, when due, and at the end
sft val trainer.steps=3 data.val_files="$work/pairs.jsonl" trainer.val_every=2
ok $? "validation: $(tail -1 "$work/val.log")"
[ "$(grep -oE '"step":[0-9]+|val/loss' "$work/val/metrics.jsonl" | tr '\n' ' ')" = '"step":0 val/loss "step":1 "step":2 val/loss "step":3 val/loss ' ]
ok $? "validated at $(grep -l val/loss "$work/val/metrics.jsonl")"

# ---- told to stop, most of the time in a validation; saved by time
for i in $(seq 40); do cat "$work/pairs.jsonl"; done >"$work/many.jsonl"
stops="trainer.steps=6 data.val_files=$work/many.jsonl trainer.val_every=1 trainer.save_minutes=1e-9"
sft never $stops
ok $? "never stopped: $(tail -1 "$work/never.log")"
untold=0
for i in $(seq 40); do
    [ ! -d "$work/stopped/checkpoints/step-000006" ] || break
    sft_start stopped $stops &
    child=$!
    sleep 0.$((RANDOM % 5))
    kill -TERM $child 2>/dev/null
    { wait $child; } 2>/dev/null
    rc=$?
    [ $rc = 0 ] || [ $rc = 143 ] # before it listens, the signal ends it
    ok $? "stop $i: exit code $rc, $(tail -1 "$work/stopped.log")"
    child=""
    [ -d "$work/stopped/checkpoints" ] && untold=$((untold + $(cat "$work"/stopped/checkpoints/*/state.json | grep -c untold)))
done
sft stopped $stops
ok $? "going on after stops: $(tail -1 "$work/stopped.log")"
same_steps() { # what is told and saved, but for times
    diff <(untimed "$work/never") <(untimed "$work/stopped") >/dev/null
    ok $? "after stops other metrics are told"
    cmp -s "$work/never/checkpoints/step-000006/model/model.safetensors" "$work/stopped/checkpoints/step-000006/model/model.safetensors"
    ok $? "after stops the weights are others"
}
same_steps
[ $untold -gt 0 ] || { skipped=$((skipped + 1)); echo "skipped: no stop met a validation"; }
[ -d "$work/never/checkpoints/step-000005" ]
ok $? "nothing was saved by time"

# ---- going on; with other sums: allowed, and said; with another order of the data: refused
cp -r "$work/pairs" "$work/other"
sft other trainer.steps=3 trainer.leaves=4 && grep -q 'trainer.leaves was 8, is 4' "$work/other/log.txt"
ok $? "other leaves: $(tail -1 "$work/other.log")"
sft pairs trainer.steps=3 trainer.seed=9
said pairs $? 'met its data in another order'
sft pairs trainer.steps=4
ok $? "going on: $(tail -1 "$work/pairs.log")"
sft whole trainer.steps=4
cmp -s "$work/pairs/checkpoints/step-000004/model/model.safetensors" "$work/whole/checkpoints/step-000004/model/model.safetensors"
ok $? "what follows a stop is not what follows without one"
the_end
