#!/bin/bash
# readme.sh HONE - runs every command of README.md's "sh" blocks as a reader would, in a scratch folder that looks like
# the repository.  A command that fails is named; "demo/" is where they write.
hone=$(readlink -f "$1")
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for f in tests recipes examples include docs; do ln -s "$root/$f" "$scratch/$f"; done
mkdir "$scratch/build"
ln -s "$hone" "$scratch/build/hone"
awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' README.md >"$scratch/commands"
cd "$scratch" || exit 1
command -v python3 >/dev/null || { echo "README.md shows a scorer in Python, and there is no python3"; exit 77; }
n=$(grep -c 'build/hone' commands)
[ "$n" -ge 20 ] || { echo "only $n commands found in README.md"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
if bash -e -o pipefail -x commands >out 2>err; then
    echo "$n passed, 0 failed, 0 skipped"
else
    echo "FAILED: $(grep '^+ ' err | tail -1)"
    grep -v '^+' err | tail -3
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
