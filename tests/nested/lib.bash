# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What nested-host, stock-kernel and busybox-initrd share: Debian's packages unpacked into the cache, never installed.
# Sourced; expects `set -euo pipefail`. $program names the caller in messages.

: "${program:=${0##*/}}"
export LC_ALL=C

say() { printf '%s: %s\n' "$program" "$*" >&2; }

# die STATUS MESSAGE: 2 is bad usage, 3 is "this machine cannot do it" with what to do about it.
die() {
    say "${*:2}"
    exit "$1"
}

cache_root=${XDG_CACHE_HOME:-$HOME/.cache}/idle-wake-lab/nested

# need COMMAND=PACKAGE...: installs what is missing when root, else says how.
need() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    ((${#missing[@]})) || return 0
    local line="apt-get install -y --no-install-recommends ${missing[*]}"
    command -v apt-get >/dev/null || die 3 "missing here: ${missing[*]} (Debian's package names); apt-get is not there to install them"
    ((EUID == 0)) || die 3 "missing: ${missing[*]}; as root: $line"
    say "installing ${missing[*]}"
    $line -o DPkg::Lock::Timeout=300 >&2 || die 3 "'$line' failed"
}

# locked COMMAND...: one at a time per cache, so that two cold starts do the work once.
locked() {
    mkdir -p "$cache_root"
    (
        flock 9
        "$@"
    ) 9>"$cache_root/lock"
}

# publish TEMPORARY FINAL: a cache entry appears whole or not at all.
publish() {
    mv -T "$1" "$2" 2>/dev/null || [[ -e $2 ]] || die 3 "cannot create $2"
}

# newest PATTERN: newest package of that name by apt's lists. '*' stands for a version (6.12.117+deb12, 6.1.0-57), never for a
# flavour: linux-image-6.12.*-amd64 is not linux-image-6.12.117+deb12-cloud-amd64.
newest() {
    local pattern=$1 expression
    expression=$(sed 's/[.+]/\\&/g; s/\*/([0-9.+~-]|deb[0-9]|bpo)*/' <<<"$pattern")
    apt-cache pkgnames "${pattern%%\**}" 2>/dev/null | grep -xE "$expression" | sort -V | tail -n 1
}

# fetch PATTERN: prints the directory of the unpacked newest package of that name. It asks apt only when its lists have changed
# since the last time; with nothing to download (no network), the newest one in the cache does.
fetch() {
    local pattern=$1 pointer=$cache_root/newest-${1//\*/_}
    if [[ ! $pointer -nt /var/lib/apt/lists ]] || ! cached "$pointer" >/dev/null; then
        locked fetch_locked "$pattern" "$pointer"
    fi
    cached "$pointer"
}

# cached POINTER: the directory that the pointer file names, if it is there.
cached() {
    local name
    [[ -s $1 ]] && name=$(<"$1") && [[ -d $cache_root/$name ]] && printf "%s\n" "$cache_root/$name"
}

fetch_locked() {
    local pattern=$1 pointer=$2 package version directory temporary
    package=$(newest "$pattern")
    if [[ -z $package ]] && ((EUID == 0)); then
        say "no $pattern in apt's lists: apt-get update"
        apt-get update -qq >&2 || true
        package=$(newest "$pattern")
    fi
    if [[ -z $package ]]; then
        ! cached "$pointer" >/dev/null || return 0
        die 3 "no package $pattern in apt's lists; as root: apt-get update (sources: bookworm and bookworm-security)"
    fi
    version=$(apt-cache show --no-all-versions "$package" | sed -n 's/^Version: //p')
    directory=$cache_root/${package}_$version
    if [[ ! -d $directory ]]; then
        temporary=$(mktemp -d "$cache_root/.fetch.XXXXXX")
        # shellcheck disable=SC2064  # the directory of now
        trap "rm -rf '$temporary'" EXIT
        say "fetching $package $version"
        # As root, apt drops its privileges to write: it must be let into the directory, else it warns.
        if ! (cd "$temporary" && download "$package"); then
            cached "$pointer" >/dev/null || die 3 "cannot download $package; try: apt-get update"
            say "cannot download $package: taking $(<"$pointer") from the cache"
            return 0
        fi
        dpkg-deb -x "$temporary"/*.deb "$temporary/tree" || die 3 "cannot unpack $package"
        publish "$temporary/tree" "$directory"
    fi
    printf "%s\n" "${directory##*/}" >"$pointer.new"
    mv "$pointer.new" "$pointer"
}

download() {
    apt-get download -qq -o APT::Sandbox::User=root "$1" >&2 && return 0
    ((EUID == 0)) || return 1
    apt-get update -qq >&2 || true
    apt-get download -qq -o APT::Sandbox::User=root "$1" >&2
}

# kernel_image TREE: the one vmlinuz of an unpacked kernel package.
kernel_image() {
    local image
    for image in "$1"/boot/vmlinuz-*; do
        [[ -s $image ]] || die 3 "no kernel in $1: remove it and try again"
        printf '%s\n' "$image"
    done
}

busybox_binary() {
    local tree
    tree=$(fetch busybox-static)
    printf '%s\n' "$tree/bin/busybox"
}

# pack DIRECTORY FILE: the directory as a newc archive, owned by root, not compressed (unpacking costs more than reading it).
pack() {
    local busybox
    busybox=$(busybox_binary)
    (cd "$1" && find . | sort | "$busybox" cpio -o -H newc -R 0:0 2>/dev/null) >"$2"
}

# keep_newest COUNT PATTERN: removes the older files of that name from the cache.
keep_newest() {
    find "$cache_root" -maxdepth 1 -type f -name "$2" -printf '%T@ %p\0' | sort -zrn | tail -z -n "+$(($1 + 1))" |
        cut -z -d ' ' -f 2- | xargs -0r rm -f
}
