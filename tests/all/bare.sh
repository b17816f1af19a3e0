#!/bin/bash
# bare.sh - a stranger's first hour: ./quickstart and ./check --quick on Debian 12 and on Debian 13 with nothing
# installed but what debootstrap's smallest variant brings, from a clean copy of the last commit.  Each with its own
# gcc, and hone without gcc's leave to warn.  The roots are kept under build/bare; the mirror is the one that this
# machine's own apt reads.  Needs to be root.
#   bash tests/all/bare.sh build/hone [DIR [SUITE...]]
. tools/packages.sh
shift; shift
suites=${*:-bookworm trixie}
passed=0 failed=0 skipped=0
root=""
leave() { [ -z "$root" ] || { umount "$root/proc" "$root/sys" 2>/dev/null; rm -rf --one-file-system "$root"; root=""; }; }
trap leave EXIT
trap 'exit 1' INT TERM
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
skip() { skipped=$((skipped + 1)); echo "skipped: $1"; }
sums() { # adds the closing line of a check to ours
    local p f s
    read -r p _ f _ s _ <<<"$(grep -aoE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$1" | tail -1 | tr -d ,)"
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
}

# mirror: where this machine's apt gets Debian from, or nothing.
mirror() { apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed -n 's/^Debian main //p' | head -1; }

# unpack SUITE: a fresh copy of the kept root at $root.
unpack() {
    local kept=build/bare/$1.tar from
    mkdir -p build/bare
    if [ ! -f "$kept" ]; then
        from=$(mirror)
        [ -n "$from" ] || { echo "apt knows no Debian mirror"; return 1; }
        root=$(mktemp -d "$PWD/build/bare/$1.XXXXXX")
        debootstrap --variant=minbase "$1" "$root" "$from" >"$kept.log" 2>&1 || { tail -2 "$kept.log"; leave; return 1; }
        apt-config dump | grep -iE '^Acquire::https?::Proxy' >"$root/etc/apt/apt.conf.d/90proxy"
        tar -C "$root" -cf "$kept.new" . && mv "$kept.new" "$kept"
        rm -f "$kept.log"
        leave
    fi
    root=$(mktemp -d "$PWD/build/bare/$1.XXXXXX")
    tar -C "$root" -xf "$kept" && mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys"
}

[ "$(id -u)" = 0 ] || { skip "a chroot wants root"; suites=""; }
[ -z "$suites" ] || need_packages debootstrap 2>/dev/null || { skip "debootstrap is not to be had here"; suites=""; }
for suite in $suites; do
    unpack "$suite" >build/bare.log 2>&1 || { skip "$suite: $(tail -1 build/bare.log)"; leave; continue; }
    cp /etc/hosts "$root/etc/hosts" # a machine knows its own name: else every start of ranks asks a name server, which may be slow
    mkdir "$root/hone"
    git archive HEAD | tar -C "$root/hone" -x
    chroot "$root" apt-get update -qq >/dev/null 2>&1 || { skip "$suite: no packages to be had"; leave; continue; }
    chroot "$root" /hone/quickstart >"$root/log" 2>&1
    ok $? "$suite: quickstart: $(tail -3 "$root/log" | tr '\n' ' ')"
    echo "$suite: $(chroot "$root" gcc --version | head -1): $(grep -a 'held-out accuracy went' "$root/log")"
    chroot "$root" /hone/check --quick >"$root/log" 2>&1
    ok $? "$suite: check --quick"
    grep -a FAIL "$root/log"
    sums "$root/log"
    leave
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
