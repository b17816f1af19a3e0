#!/bin/sh
# check_style.sh - what the formatter cannot say: a file may include headers of its own folder or of a lower level only,
# ARCHITECTURE.md has the same levels, the environment is read by the names of docs/environment.md alone, lines end before column 121 (README.md's before 101), a source says in its first
# line what it is, malloc lives in base/.
cd "$(dirname "$0")/.." || exit 1
level() {
    case $1 in
    base) echo 0;; jinja|maths|http|gguf) echo 1;; tensor|text|image|arch|algo|hub) echo 2;; cut|talk) echo 3;; op|file|tool) echo 4;;
    comm|task|run) echo 5;; param|par|page) echo 6;; layer) echo 7;; model) echo 8;; engine|plan) echo 9;;
    ask) echo 10;; rollout|train|serve) echo 11;; sync|config) echo 12;; step|import) echo 13;; cmd) echo 14;;
    *) echo 99;; esac
}
bad=0
for f in $(find src -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh'); do
    from=$(echo "$f" | cut -d/ -f2)
    for to in $(sed -n 's/^#include "\([a-z_]*\)\/.*/\1/p' "$f" | sort -u); do
        [ "$to" = "$from" ] && continue
        [ "$(level "$to")" -lt "$(level "$from")" ] || { echo "$f: $from/ may not include $to/"; bad=1; }
    done
done
for d in src/*/; do # the picture has every folder at its level
    d=${d#src/} d=${d%/}
    grep -qE "^ *$(level "$d")  $d/ +[^ ]" ARCHITECTURE.md || { echo "ARCHITECTURE.md: no line \"$(level "$d")  $d/\" under Levels"; bad=1; }
done
for d in $(sed -n 's|^ *[0-9][0-9]*  \([a-z]*\)/ .*|\1|p' ARCHITECTURE.md); do
    [ -d "src/$d" ] || { echo "ARCHITECTURE.md: there is no folder src/$d"; bad=1; }
done
# op/cuda: what any card takes knows nothing of what one kind of card has.
wrong=$(grep -nE '^#include "op/cuda/(plain|sm90)/' -r src/op/cuda/common
        grep -nE '^#include "op/cuda/sm90/' -r src/op/cuda/plain; grep -nE '^#include "op/cuda/plain/' -r src/op/cuda/sm90)
[ -z "$wrong" ] || { echo "$wrong" | sed 's/$/   <- op\/cuda: common is below plain and sm90, which are side by side/'; bad=1; }
sources() { git ls-files -co --exclude-standard | grep -vE '^(shared|tests/data)/' | grep -E "$1"; }
for f in $(sources '\.(c|h|inc|cu|cuh|sh|py|cmake)$|^(check|quickstart|CMakeLists.txt|tools/format|tools/same_bits|tools/same_sass)$'); do
    name=${f##*/}
    case $(sed -n '1{/^#!/n;};p;q' "$f") in
    *" - see "*".h. */") echo "$f: its first line says only where to look"; bad=1;;
    "/* $name - "?* | "/* $name "*" - "?* | "# $name - "?* | "# $name "*" - "?* | '"""'"$name"*" - "?*) ;;
    *) echo "$f: does not say in its first line what it is (NAME - WHAT)"; bad=1;;
    esac
done
too_long() { # too_long COLUMNS FILE...
    most=$1
    shift
    long=$(LC_ALL=C.UTF-8 grep -nE "^.{$((most + 1)),}" "$@" /dev/null | cut -d: -f1,2)
    [ -z "$long" ] || { echo "$long" | sed "s/\$/: longer than $most columns/"; bad=1; }
}
# 120 columns; what a program made is as wide as it likes.
too_long 120 $(sources '\.(c|h|inc|cu|cuh)$' | grep -v 'unicode_data.inc')
too_long 100 README.md
too_long 120 $(git ls-files -co --exclude-standard -- '*.md' | grep -E '^[^/]*\.md$|^docs/([^/]*|log/[^/]*)\.md$')
alloc=$(grep -nE '(^|[^_a-z])(malloc|calloc|realloc|free)\(' -r src --include='*.[ch]' --include='*.inc' --include='*.cu' --include='*.cuh' | grep -vE '^src/(base|cmd/main|comm/mpi)' | head -5)
[ -z "$alloc" ] || { echo "$alloc" | sed 's/$/   <- malloc and free belong in base\//'; bad=1; }
# Of the environment only what docs/environment.md has.
named="HF_ENDPOINT HF_TOKEN HF_HOME HOME NO_COLOR COLUMNS OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_SIZE PMI_RANK PMIX_RANK
 SLURM_STEP_NUM_TASKS SLURM_PROCID CUDA_MPS_PIPE_DIRECTORY"
for n in $named; do
    grep -q "\`$n\`" docs/environment.md || { echo "docs/environment.md: $n is missing"; bad=1; }
done
for n in $(grep -rhoE '\<(secure_)?getenv\("[^"]*"' src | cut -d'"' -f2) $(sed -n '/^} launchers/,/^};/p' src/comm/world.c | grep -oE '"[A-Z_]+"' | tr -d '"'); do
    case " $(echo $named) " in *" $n "*) ;; *) echo "src: the environment's $n is not in docs/environment.md"; bad=1 ;; esac
done
wrong=$(grep -rnE '\<(secure_)?getenv\([^"]' src --include='*.[ch]' | grep -v '^src/comm/world.c:.*launchers\[')
[ -z "$wrong" ] || { echo "$wrong" | sed 's/$/   <- the environment by a name that is not written here/'; bad=1; }
exit $bad
