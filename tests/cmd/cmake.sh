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
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
