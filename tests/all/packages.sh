#!/bin/bash
# packages.sh - the .deb on bare systems (debootstrap, as root): what it needs is there, and inspect, a run, the page and
# the manual work.  Debian 12 and 13, and Ubuntu 22.04 and 24.04 where a mirror can be reached; others are skipped.
#   bash tests/all/packages.sh build/hone
. tests/cmd/train_common.bash
command -v debootstrap >/dev/null && [ "$(id -u)" = 0 ] || { echo "0 passed, 0 failed, 1 skipped (debootstrap as root is wanted)"; exit 0; }
tools/package "$(dirname "$hone")" "$work/out" >"$work/log" || { echo "no package: $(cat "$work/log")"; exit 1; }
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -1 | tr -d ' ')
for system in bookworm trixie jammy noble; do
    at=${mirror:-http://deb.debian.org/debian}
    case $system in jammy | noble) at=http://archive.ubuntu.com/ubuntu ;; esac
    root=$work/$system
    debootstrap --variant=minbase "$system" "$root" "$at" >"$work/$system.log" 2>&1 || { echo "skipped: $system cannot be had from $at: $(tail -1 "$work/$system.log")"; skipped=$((skipped + 1)); rm -rf "$root"; continue; }
    cp "$work"/out/*.deb "$root/hone.deb"
    chroot "$root" dpkg -i /hone.deb >"$work/$system.log" 2>&1; ok $? "$system: dpkg -i: $(tail -2 "$work/$system.log")"
    inside() { chroot "$root" "$@" >"$work/out.txt" 2>"$work/err.txt"; }
    inside hone inspect /usr/share/hone/recipes/quickstart/model; ok $? "$system: inspect: $(cat "$work/err.txt")"
    inside hone random /usr/share/hone/recipes/quickstart/model /model --seed 3; ok $? "$system: random"
    for ((i = 0; i < 16; i++)); do
        echo '{"data_source":"openai/gsm8k","prompt":[{"role":"user","content":"'$i+1'"}],"reward_model":{"style":"rule","ground_truth":"'$((i + 1))'"}}'
    done >"$root/sums.jsonl"
    inside hone train model.path=/model 'data.train_files=[/sums.jsonl]' data.train_batch_size=4 rollout.n=2 data.max_prompt_length=16 \
        data.max_response_length=4 train.micro_tokens=64 trainer.threads=1 trainer.steps=2 trainer.run_dir=/run1
    ok $? "$system: train: $(tail -1 "$work/err.txt")"
    inside hone show /run1; ok $? "$system: show"
    chroot "$root" timeout 3 hone page /run1 --port 0 >"$work/url" 2>&1; grep -q '^http://127' "$work/url"; ok $? "$system: page: $(cat "$work/url")"
    inside hone pull org/name; grep -q 'libcurl is not on this machine' "$work/err.txt"; ok $? "$system: pull without libcurl: $(cat "$work/err.txt")"
    [ -f "$root/usr/share/man/man1/hone.1" ] || grep -rqs 'path-exclude.*man' "$root/etc/dpkg"; ok $? "$system: man pages"
    chroot "$root" bash -c '. /usr/share/bash-completion/completions/hone; COMP_WORDS=(hone ins); COMP_CWORD=1; _hone; [ "${COMPREPLY[*]}" = inspect ]'; ok $? "$system: completion"
    echo "$system: libc $(chroot "$root" dpkg-query -W -f '${Version}' libc6), $(cat "$root/etc/os-release" | sed -n 's/^PRETTY_NAME=//p')"
    rm -rf "$root"
done
the_end
