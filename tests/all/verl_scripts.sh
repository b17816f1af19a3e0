#!/bin/bash
# verl_scripts.sh - launch scripts as their authors wrote them: `hone import-verl --args` against the words that bash
# really makes. Bash runs them (as nobody, in a copy of their folder) on a machine that has only what is put there:
# programs that write down how they were called, and programs that do nothing. Python that is asked about the machine
# (-c) answers no.
#   bash tests/all/verl_scripts.sh build/hone FOLDER...     each FOLDER with scripts below it; VERL=FOLDER[:FOLDER...] names more for ./check --all
hone=$(readlink -f "$1")
folders=("${@:2}")
IFS=: read -r -a more <<<"$VERL"
folders+=("${more[@]}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
for p in basename dirname date nproc cat seq env nohup realpath readlink tr sed grep awk cut head tail wc sort uname expr; do
    ln -s "$(type -P $p)" "$scratch/bin/$p"
done
cat >"$scratch/bin/python3" <<'END'
#!/bin/bash
name=${0##*/}
[ "$name $1" = "uv run" ] || [ "$name" != uv ] || exit 0
[ "$1" != -c ] && [ "$1" != - ] || exit 1
line="[\"$name\""
for w; do
    w=${w//\\/\\\\} w=${w//\"/\\\"} w=${w//$'\n'/\\n} w=${w//$'\t'/\\t}
    line+=", \"$w\""
done
echo "$line]" >>"$LOG"
END
for p in python torchrun uv; do ln -s python3 "$scratch/bin/$p"; done
cat >"$scratch/bin/ray" <<'END'
#!/bin/bash
[ "$1 $2" = "job submit" ] || exit 0
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
"${@:2}"
END
for p in mkdir rm cp mv chmod sleep tee pip pip3 hf huggingface-cli conda wget curl git ps kill pkill; do printf '#!/bin/bash\n' >"$scratch/bin/$p"; done
chmod +x "$scratch"/bin/{python3,ray,mkdir,rm,cp,mv,chmod,sleep,tee,pip,pip3,hf,huggingface-cli,conda,wget,curl,git,ps,kill,pkill}
chmod 755 "$scratch"
nobody=""
[ "$(id -u)" != 0 ] || nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"

by_bash() { # SCRIPT ARGUMENT...; the number of open files is this machine's business
    : >"$scratch/log"
    chmod 666 "$scratch/log"
    timeout 20 $nobody env -i PATH="$scratch/bin" HOME=/home/u LOG="$scratch/log" 'BASH_FUNC_ulimit%%=() { :; }' "$BASH" "$@" >/dev/null 2>"$scratch/said" </dev/null
}
by_hone() { "$hone" import-verl "$1" HOME=/home/u --args -- "${@:2}" >"$scratch/got" 2>"$scratch/notes" </dev/null; }
same() { # again, where the time of day may be among the words
    for try in 1 2 3; do
        by_hone "$@"
        by_bash "$@"
        cmp -s "$scratch/log" "$scratch/got" && return 0
        grep -q date "$1" || break
    done
    return 1
}
scripts=0 silent=0 exact=0 different=0
for f in "${folders[@]}"; do
    [ -d "$f" ] || continue
    rm -rf "$scratch/tree"
    cp -r "$(realpath "$f")" "$scratch/tree" && chmod -R a+rwX "$scratch/tree"
    cd "$scratch/tree" || exit 1
    while read -r s; do
        scripts=$((scripts + 1))
        arguments=()
        same "$s"
        rc=$?
        if [ ! -s "$scratch/log" ] && [ ! -s "$scratch/got" ]; then # a few want a number of GPUs and a folder
            arguments=(8 out)
            same "$s" "${arguments[@]}"
            rc=$?
        fi
        if [ $rc != 0 ]; then
            different=$((different + 1))
            echo "different: $f/$s ${arguments[*]}"
            diff <(sed 's/", "/\n/g' "$scratch/log") <(sed 's/", "/\n/g' "$scratch/got") | cut -c 1-150 | head -6
            echo "    bash: $(grep -v '^+' "$scratch/said" | tail -1 | cut -c 1-150)"
            echo "    hone: $(tail -1 "$scratch/notes" | cut -c 1-150)"
        elif [ -s "$scratch/log" ]; then exact=$((exact + 1)); else
            silent=$((silent + 1))
            echo "launches nothing: $f/$s: $(grep -v '^+' "$scratch/said" | tail -1 | cut -c 1-110)"
        fi
    done < <(find . -name '*.sh' | sort)
    cd "$OLDPWD" || exit 1
done
[ $scripts != 0 ] || { echo "no launch scripts here: name a folder that has them"; exit 77; }
echo "$scripts scripts, $((exact + different)) launch something, $exact with bash's words"
# 84 of 86 is what is promised: what a script does on a machine of another kind (a file it sources, a program it waits
# for) is not to be known here
failed=0
[ $((43 * different)) -le $((exact + different)) ] || failed=$different
echo "$exact passed, $failed failed, $((silent + different - failed)) skipped"
[ $failed = 0 ]
