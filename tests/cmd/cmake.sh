#!/bin/bash
# cmake.sh - what a user's compiler warns of does not keep him from building: -Werror is in the build that ./check
# makes, and in no other.  A tree that was copied with its build folder is built where it is now.
#   bash tests/cmd/cmake.sh build/hone
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ok() { if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }
cmake -S . -B "$work/plain" -G Ninja >"$work/log" 2>&1
ok $? "cmake: $(tail -1 "$work/log")"
! grep -q -e -Werror "$work/plain/build.ninja"
ok $? "a plain build makes errors of warnings"
cmake -S . -B "$work/strict" -G Ninja -DHONE_WERROR=ON >"$work/log" 2>&1
grep -q -e -Werror "$work/strict/build.ninja"
ok $? "HONE_WERROR=ON does not"
grep -q 'build build -DHONE_WERROR=ON' check && grep -q 'build build -DHONE_WERROR=OFF' quickstart
ok $? "./check asks for it and ./quickstart does not"
. tools/packages.sh
mkdir "$work/a"
printf 'cmake_minimum_required(VERSION 3.22)\nproject(a NONE)\n' >"$work/a/CMakeLists.txt"
(cd "$work/a" && build build && touch build/mine && build build && [ -f build/mine ]) >"$work/log" 2>&1
ok $? "a build folder that is right was made again: $(tail -1 "$work/log")"
cp -r "$work/a" "$work/b"
(cd "$work/b" && build build && [ ! -f build/mine ]) >"$work/log" 2>&1
ok $? "a copied tree: $(tail -1 "$work/log")"
ln -s "$work/a" "$work/c"
(cd "$work/c" && build build && [ -f build/mine ]) >"$work/log" 2>&1
ok $? "a tree reached by a link: $(tail -1 "$work/log")"

# ---- which commit a program is of: that of its own repository, with what is not committed; written when it is another
mkdir -p "$work/g/src/b" "$work/g/include" && echo a >"$work/g/src/a" && echo b >"$work/g/src/b/b"
commit_of() { cmake -DSOURCE="$1" -DOUT="$work/commit.inc" -P tools/commit.cmake && cat "$work/commit.inc"; }
own_git() { git -C "$work/g" -c user.name=a -c user.email=a@b.example "$@" >/dev/null 2>&1; }
without=$(commit_of "$work/g")
cp -r "$work/g" "$work/h" && [ "$(commit_of "$work/h")" = "$without" ] && grep -qE '^"none, sources [0-9a-f]{12}"$' <<<"$without"
ok $? "outside of a repository: $without, $(cat "$work/commit.inc")"
echo c >"$work/h/src/b/b" && [ "$(commit_of "$work/h")" != "$without" ]
ok $? "other sources outside of a repository: $without, $(cat "$work/commit.inc")"
if own_git init; then
    own_git add src && own_git commit -m a
    commit_of "$work/g" | grep -qE '^"[0-9a-f]{12}"$'
    ok $? "a commit: $(cat "$work/commit.inc")"
    touch -d '2 days ago' "$work/commit.inc" && was=$(stat -c %Y "$work/commit.inc")
    commit_of "$work/g" >/dev/null && [ "$was" = "$(stat -c %Y "$work/commit.inc")" ]
    ok $? "the same commit was written again"
    echo b >"$work/g/src/a"
    commit_of "$work/g" | grep -qE '^"[0-9a-f]{12}\+[0-9a-f]{8}"$'
    ok $? "a change that is not committed: $(cat "$work/commit.inc")"
    commit_of "$work/g/src" | grep -q '^"none, '
    ok $? "a tree inside another repository: $(cat "$work/commit.inc")"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
