#!/bin/bash
# readme.sh HONE - runs every command of the "sh" blocks of README.md and of docs/guide.md as a reader would, each page
# in a scratch folder that looks like the repository.  A command that fails is named; "demo/" is where they write.
hone=$(readlink -f "$1")
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0
command -v python3 >/dev/null || { echo "the pages show a scorer in Python, and there is no python3"; exit 77; }

commands_of() { # commands_of PAGE LEAST: fewer commands than that are not the page
    local page=$root/$1 at n
    at=$scratch/${1//\//_}
    mkdir -p "$at/build"
    for f in tests recipes examples include docs; do ln -s "$root/$f" "$at/$f"; done
    ln -s "$hone" "$at/build/hone"
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$page" >"$at/commands"
    n=$(grep -c 'build/hone' "$at/commands")
    if [ "$n" -lt "$2" ]; then
        echo "FAILED: only $n commands found in $1"
        failed=$((failed + 1))
    elif (cd "$at" && bash -e -o pipefail -x commands >out 2>err); then passed=$((passed + n))
    else
        echo "FAILED: $1: $(grep '^+ ' "$at/err" | tail -1)"
        grep -v '^+' "$at/err" | tail -3
        failed=$((failed + 1))
    fi
}
commands_of README.md 8
commands_of docs/guide.md 30

# ---- every page is there that a page names; README.md stays short
for page in README.md ARCHITECTURE.md CONTRIBUTING.md docs/*.md docs/log/*.md; do
    folder=$(dirname "$page")
    for to in $(grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | grep -v '://'); do
        if [ -e "$folder/$to" ]; then passed=$((passed + 1)); else echo "FAILED: $page names $to"; failed=$((failed + 1)); fi
    done
done
# ---- so is every source that the pages about the code name, in full or from src/ on
for page in ARCHITECTURE.md CONTRIBUTING.md docs/adding.md docs/walk.md docs/glossary.md; do
    for file in $(grep -oE '`[a-z][A-Za-z0-9_/.]*/[A-Za-z0-9_]+\.(c|h|inc|cu|cuh|sh|md)`' "$page" | tr -d '`' | grep -v NAME | sort -u); do
        if [ -e "$file" ] || [ -e "src/$file" ]; then passed=$((passed + 1)); else
            echo "FAILED: $page names $file, which is not there"
            failed=$((failed + 1))
        fi
    done
done
[ "$(wc -l <README.md)" -le 100 ] || { echo "FAILED: README.md has more than 100 lines"; failed=$((failed + 1)); }
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
