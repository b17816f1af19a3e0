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
 libsnappy-dev liblz4-dev libbrotli-dev zlib1g-dev libgmp-dev"

# build DIR [cmake options]: configures once, then only what changed.
build() {
    dir=$1
    shift
    [ -f "$dir/build.ninja" ] || cmake -S . -B "$dir" -G Ninja "$@" >"$dir.log" 2>&1 || { cat "$dir.log"; rm -rf "$dir"; return 1; }
    rm -f "$dir.log"
    ninja -C "$dir" >"$dir/ninja.log" 2>&1 || { tail -40 "$dir/ninja.log"; return 1; }
}
