#!/bin/bash
# package.sh - what is installed: libc alone is needed and nothing newer than 2.35, the program finds its libraries and
# models from where it lies, man pages and completion are of the verbs that there are.
#   bash tests/cmd/package.sh build/hone
. tests/cmd/train_common.bash
build=$(dirname "$hone")
grep -qE '^HONE_(SANITIZE|TSAN):BOOL=ON' "$build/CMakeCache.txt" && { echo "0 passed, 0 failed, 1 skipped (an instrumented build is not packed)"; exit 0; }
DESTDIR="$work/root" cmake --install "$build" --prefix /usr --strip >"$work/log" 2>&1
ok $? "cmake --install: $(tail -3 "$work/log")"
bin=$work/root/usr/bin/hone
[ "$(readelf -d "$bin" | grep -c NEEDED)" = "$(readelf -d "$bin" | grep NEEDED | grep -cE 'lib(c|m)\.so\.6|ld-linux')" ]
ok $? "it needs $(readelf -d "$bin" | grep NEEDED)"
for f in "$work"/root/usr/lib/hone/*; do
    newest=$(objdump -T "$f" | grep -oE 'GLIBC_2\.[0-9]+' | sort -t. -k2 -n | tail -1)
    [ "${newest#GLIBC_2.}" -le 35 ]; ok $? "$f wants $newest: $(objdump -T "$f" | grep "$newest" | awk '{print $NF}' | tr '\n' ' ')"
done
"$bin" version --json >"$work/out" && python3 -c "import json, sys; j = json.load(open('$work/out')); assert j['version'] and j['commit'] and j['c'] == 11"
ok $? "version --json: $(cat "$work/out")"
"$bin" random recipes/quickstart/model "$work/model" --seed 1 >/dev/null && echo '{"tokens":[1,2,3]}' | "$bin" score "$work/model" --in - >"$work/out"
ok $? "the installed program computes"
if command -v mpirun >/dev/null && [ -f "$work/root/usr/lib/hone/libhone_mpi.so" ]; then
    echo '{"tokens":[1,2,3]}' | mpirun --allow-run-as-root --oversubscribe -n 2 "$bin" score "$work/model" --in - >"$work/two" 2>"$work/err"
    cmp -s "$work/out" "$work/two"; ok $? "on two ranks: $(head -3 "$work/err")"
else skipped=$((skipped + 1)); fi

# ---- man pages and completion
verbs=$("$bin" --help | sed -n 's/^  \([a-z-]*\) .*/\1/p' | sort)
[ "$(cd "$work/root/usr/share/man/man1" && ls hone-*.1 | sed 's/^hone-//; s/\.1$//' | sort)" = "$verbs" ]; ok $? "a page for each verb"
if command -v groff >/dev/null; then
    for p in "$work"/root/usr/share/man/man1/*; do groff -man -ww -Tutf8 "$p" 2>&1 >/dev/null | head -2; done >"$work/warned"
    [ ! -s "$work/warned" ]; ok $? "groff: $(head -3 "$work/warned")"
    groff -man -Tascii -P-cbou "$work/root/usr/share/man/man1/hone-pull.1" | grep -q -- '--endpoint URL'; ok $? "options in a page"
else skipped=$((skipped + 2)); fi
complete_at() { # complete_at WORD...: what bash offers for the last
    bash --norc -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hone; echo "${COMPREPLY[*]}"' \
        "$work/root/usr/share/bash-completion/completions/hone" "$@"
}
[ "$(complete_at hone tra)" = train ]; ok $? "hone tra: $(complete_at hone tra)"
[ "$(complete_at hone pull --end)" = --endpoint ]; ok $? "hone pull --end: $(complete_at hone pull --end)"
[ "$(complete_at hone score m --compute bf)" = bf16 ]; ok $? "a value: $(complete_at hone score m --compute bf)"
[ -z "$(complete_at hone score "$work")" ]; ok $? "files are bash's"
for s in bash zsh fish; do
    command -v $s >/dev/null || { skipped=$((skipped + 1)); continue; }
    "$bin" manual $s | $s -n 2>"$work/err"; ok $? "$s does not read it: $(head -2 "$work/err")"
done
the_end
