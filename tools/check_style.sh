#!/bin/sh
# check_style.sh - what the formatter cannot say: a file may include headers of its own folder or of a lower level only,
# lines end before column 151, a source file opens by saying what it is, malloc lives in base/.
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
long=$(grep -nE '^.{151,}' $(git ls-files -co --exclude-standard 'src/*.[ch]') /dev/null | cut -d: -f1,2)
[ -z "$long" ] || { echo "$long" | sed 's/$/: longer than 150 columns/'; bad=1; }
alloc=$(grep -nE '(^|[^_a-z])(malloc|calloc|realloc|free)\(' -r src --include='*.[ch]' | grep -vE '^src/(base|cmd/main|comm/mpi)' | head -5)
[ -z "$alloc" ] || { echo "$alloc" | sed 's/$/   <- malloc and free belong in base\//'; bad=1; }
exit $bad
