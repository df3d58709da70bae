# Sourced by the other tools: makes ./.venv with torch, once, and prints what it does.
# VENV names another folder for it; PIP_EXTRA_INDEX_URL adds an index with the CPU build of torch.

say() { printf '== %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  try   %s\n' "$2" >&2
  exit 3
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

# apt_install PACKAGE...: installs missing packages without recommended ones; fails if that is not allowed.
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

# without_daemons COMMAND...: packages that COMMAND installs start no daemon, because Debian checks policy-rc.d first.
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
  # torch comes first, in its exact version, so that packages that need torch use this build
  # looked up by its folder, because an import takes seconds
  if ! ls -d "$venv"/lib/python3*/site-packages/torch-2.13.0*.dist-info >/dev/null 2>&1; then
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

# install_smoke_environments: the Pythons and torch versions of the smoke tests; their last lines name what is missing.
install_smoke_environments() {
  command -v gcc >/dev/null || apt_install gcc libc6-dev || say "no gcc: builds of torch for CUDA cannot be used"
  say "installing the Pythons and torch versions of the smoke tests"
  python "$root/tools/smoke_environments.py" || say "the smoke tests run on this Python only"
}
