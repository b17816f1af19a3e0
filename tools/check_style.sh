#!/bin/sh
# check_style.sh - what the formatter cannot say: a file may include headers of its own folder or of a lower level only,
# lines end before column 121 (151 in most folders still), a source opens by saying what it is, malloc lives in base/.
cd "$(dirname "$0")/.." || exit 1
level() {
    case $1 in
    base) echo 0;; tensor|text|image|arch|algo|dash) echo 1;; op|file) echo 2;; comm|task) echo 3;;
    plan|param|par) echo 4;; layer) echo 5;; model) echo 6;; rollout) echo 7;; train) echo 8;;
    sync|config) echo 9;; step) echo 10;; cmd) echo 11;; *) echo 99;; esac
}
bad=0
for f in $(find src -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh'); do
    from=$(echo "$f" | cut -d/ -f2)
    for to in $(sed -n 's/^#include "\([a-z_]*\)\/.*/\1/p' "$f" | sort -u); do
        [ "$to" = "$from" ] && continue
        [ "$(level "$to")" -lt "$(level "$from")" ] || { echo "$f: $from/ may not include $to/"; bad=1; }
    done
    case $(head -c 2 "$f") in '/*') ;; *) echo "$f: does not open by saying what it is"; bad=1;; esac
done
too_long() { # too_long COLUMNS FILE...: 120 where a folder has been set anew, 150 in the others until they are
    most=$1
    shift
    long=$(grep -nE "^.{$((most + 1)),}" "$@" /dev/null | cut -d: -f1,2)
    [ -z "$long" ] || { echo "$long" | sed "s/\$/: longer than $most columns/"; bad=1; }
}
narrow='^src/algo/'
too_long 120 $(git ls-files -co --exclude-standard 'src/*.[ch]' 'src/*.inc' | grep -E "$narrow")
too_long 150 $(git ls-files -co --exclude-standard 'src/*.[ch]' | grep -vE "$narrow")
alloc=$(grep -nE '(^|[^_a-z])(malloc|calloc|realloc|free)\(' -r src --include='*.[ch]' | grep -vE '^src/(base|cmd/main|comm/mpi)' | head -5)
[ -z "$alloc" ] || { echo "$alloc" | sed 's/$/   <- malloc and free belong in base\//'; bad=1; }
exit $bad
