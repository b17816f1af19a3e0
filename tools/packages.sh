# packages.sh - sourced by ./check and ./quickstart: installs what is missing, naming it first.
# Debian 12/13 and Ubuntu 22.04/24.04 have every one of these under the same name.
need_packages() {
    missing=""
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
    done
    [ -z "$missing" ] && return 0
    command -v apt-get >/dev/null || { echo "missing packages:$missing (no apt-get here: install them by hand)"; return 1; }
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "installing missing packages:$missing"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && return 0
    $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

BUILD_PACKAGES="gcc g++ cmake ninja-build pkg-config libc6-dev libpcre2-dev libutf8proc-dev libyaml-dev libzstd-dev
 libsnappy-dev liblz4-dev libbrotli-dev zlib1g-dev libgmp-dev libpng-dev libjpeg-dev libwebp-dev libevent-dev
 libcurl4-openssl-dev"

# Several ranks: libhone_mpi.so is built where these are, and loaded where a launcher started hone, which itself does
# not need them.
RANK_PACKAGES="libopenmpi-dev openmpi-bin"

# What tests call beside hone: Python reads timelines and is a user's scorer.
TEST_PACKAGES="python3"

# fuzzing_clang: the path of the newest clang here that can build a fuzzer; installs the distribution's own where there
# is none.
fuzzing_clang() {
    for try in here installed; do
        for c in $(ls /usr/bin/clang-[0-9]* 2>/dev/null | sort -t- -k2 -rn) $(command -v clang); do
            case ${c##*-} in *[!0-9]*) [ "${c##*/}" = clang ] || continue ;; esac
            echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return n < 0 ? *d : 0; }' \
                | "$c" -x c -fsanitize=fuzzer,address,undefined - -o /dev/null 2>/dev/null && { echo "$c"; return 0; }
        done
        [ $try = here ] && { need_packages clang libclang-rt-dev || return 1; } >/dev/null 2>&1
    done
    return 1
}

# build DIR [-DNAME=VALUE...] [TARGET...]: configures where that was not done with these values, then only what changed.
# A folder that was made for a tree elsewhere (this one is a copy of it, or was moved) is made again.
build() {
    dir=$1
    shift
    made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt" 2>/dev/null)
    [ -z "$made_for" ] || [ "$(realpath -m "$made_for")" = "$(pwd -P)" ] || rm -rf "$dir"
    made=yes targets=""
    [ -f "$dir/build.ninja" ] || made=""
    options=()
    for o in "$@"; do case $o in -D*) options+=("$o") ;; *) targets="$targets $o" ;; esac; done
    for o in "${options[@]}"; do sed 's/:[A-Z]*=/=/' "$dir/CMakeCache.txt" 2>/dev/null | grep -qxF -e "${o#-D}" || made=""; done
    [ -n "$made" ] || cmake -S . -B "$dir" -G Ninja "${options[@]}" >"$dir.log" 2>&1 || { cat "$dir.log"; rm -rf "$dir"; return 1; }
    rm -f "$dir.log"
    ninja -C "$dir" $targets >"$dir/ninja.log" 2>&1 || { tail -40 "$dir/ninja.log"; return 1; }
}
