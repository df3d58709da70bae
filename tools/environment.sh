# Sourced by the other tools: makes ./.venv with torch, once, and says what it does.
# VENV names another folder for it; PIP_EXTRA_INDEX_URL, as ever, an index with the CPU build of torch.

say() { printf '== %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  try   %s\n' "$2" >&2
  exit 3
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

# apt_install PACKAGE...: installs what is missing, and nothing that is merely recommended; false where that is not allowed.
apt_install() {
  command -v dpkg >/dev/null || return 1
  missing=
  for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  say "installing Debian packages:$missing"
  # shellcheck disable=SC2086  # the list is meant to be split
  as_root apt-get update -qq && without_daemons as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# without_daemons COMMAND...: packages that it installs start nothing on this machine. Debian asks policy-rc.d first.
without_daemons() (
  if ! [ -e /usr/sbin/policy-rc.d ]; then
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
    as_root chmod 755 /usr/sbin/policy-rc.d
  fi
  "$@"
)

# make_environment EXTRAS: ./.venv with torch, echelon and the named extras (none, or dev).
make_environment() {
  root=$(cd "$(dirname "$0")/.." && pwd)
  venv=${VENV:-$root/.venv}
  command -v python3 >/dev/null || apt_install python3 || die "no python3 here" "install Python 3.10 or later"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "echelon needs Python 3.10 or later" "python3 --version"
  if ! [ -x "$venv/bin/pip" ]; then
    python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv || die "python3 cannot make a venv" "apt-get install python3-venv"
    say "making $venv"
    python3 -m venv "$venv"
  fi
  # torch first and by its exact version: anything that asks for it later is then content with the build that is there
  if ! "$venv/bin/python" -c 'import torch, sys; sys.exit(not torch.__version__.startswith("2.13.0"))' 2>/dev/null; then
    say "installing torch 2.13.0"
    "$venv/bin/pip" install --quiet torch==2.13.0 || die "torch 2.13.0 could not be installed"
  fi
  extras=${1#none}
  stamp=$(cat "$root/pyproject.toml" "$root/src/echelon/version.py" | cksum)-$extras-$root
  if [ "$(cat "$venv/echelon.stamp" 2>/dev/null)" != "$stamp" ]; then
    say "installing echelon${extras:+ with $extras}"
    "$venv/bin/pip" install --quiet --editable "$root${extras:+[$extras]}" || die "echelon could not be installed"
    echo "$stamp" >"$venv/echelon.stamp"
  fi
  PATH=$venv/bin:$PATH
  export PATH
}
