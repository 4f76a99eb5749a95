# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What ./run and ./test share: packages, builds, progress. Sourced with `top` set to the checkout.
: "${top:?set by the sourcing script}"

start_seconds=$SECONDS

# A progress line on standard error, with the elapsed time.
say() { printf '[%4d s] %s\n' "$((SECONDS - start_seconds))" "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$2" >&2; exit "$1"; }

# The packages of the given sets, from the one table.
packages_of() {
  local sets=" $* "
  awk -F'|' -v sets="$sets" '
    /^\| [a-z0-9]/ { name = $2; set = $3; gsub(/ /, "", name); gsub(/ /, "", set)
                     if (name != "package" && index(sets, " " set " ")) print name }' "$top/docs/dependencies.md"
}

# Installs what is missing of the given sets: as root with apt, else prints the one line that would.
install_packages() {
  local missing=() package
  while read -r package; do
    # dpkg-query's status, since a removed package is still known.
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == *' installed' ]] || missing+=("$package")
  done < <(packages_of "$@")
  [[ ${#missing[@]} -eq 0 ]] && return 0
  if ! command -v apt-get >/dev/null; then
    die 3 "this is no Debian: these packages (by their Debian names) are needed: ${missing[*]}"
  fi
  if [[ $(id -u) -ne 0 ]]; then
    die 3 "missing packages; as root: apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 -qq update >&2 || die 3 "apt-get update failed"
  apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die 3 "apt-get could not install: ${missing[*]}"
}

# Configures and builds a build directory: build_cpp DIR [cmake options]
# Objects are cached by the content of their sources (ccache), for other checkouts too: paths below this one are made relative.
build_cpp() {
  local dir=$1; shift
  export CCACHE_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/idle-wake-lab/ccache CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G
  export CCACHE_DEPEND=1 # what a source includes is known from its last compilation: no preprocessing of its own
  say "building $(basename "$dir")"
  if ! cmake -S "$top" -B "$dir" -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@" >"$dir.log" 2>&1 || ! ninja -C "$dir" >>"$dir.log" 2>&1; then
    tail -n 40 "$dir.log" >&2
    die 3 "the build in $dir failed; the whole log: $dir.log"
  fi
  mv "$dir.log" "$dir/build.log"
}

# Builds (or finds in the cache) a guest kernel and links it where vmm looks: build_guest SERIES FLAVOUR LINK
build_guest() {
  local series=$1 flavour=$2 link=$3 result
  say "guest kernel $series $flavour (about 4 minutes when it is not cached)"
  result=$("$top/guest-kernel-patches/build" --series="$series" --flavour="$flavour" | tail -n 1) ||
    die 3 "the $series $flavour kernel could not be built"
  mkdir -p "$top/build/guest"
  ln -sfnT "$result" "$top/build/guest/$link"
}
