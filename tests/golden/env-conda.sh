#!/bin/bash
# gpt: what every node does before the command that it is given
words=$1 # the file that is told why this node cannot go on
shift
heard() { # a command, whose complaints are kept for the verdict
  "$@" 2>"$words"
  set -- $?
  cat "$words" >&2
  return "$1"
}
refuse() { # what is wrong, and what to type next
  printf 'error: %s\n  try   %s\n' "$1" "$2" >>"$words"
  printf 'error: %s\n  try   %s\n' "$1" "$2" >&2
  trap - EXIT
  exit 78
}

: >"$words"

# The conda environment
for conda in "${CONDA_EXE-}" "${MAMBA_EXE-}" "$(type -P conda)" "$(type -P micromamba)" "$(type -P mamba)" "$HOME/miniforge3/bin/conda" "$HOME/mambaforge/bin/conda" "$HOME/miniconda3/bin/conda" "$HOME/anaconda3/bin/conda" "$HOME/.local/bin/micromamba" /opt/conda/bin/conda; do
  [ -x "$conda" ] && break
  conda=
done
[ -n "$conda" ] || refuse 'this node has neither conda nor micromamba' '--modules NAME that brings one, or CONDA_EXE=PATH in --setup'
case ${conda##*/} in
  conda*) hook=$("$conda" shell.bash hook 2>"$words") ;;
  *) hook=$("$conda" shell hook --shell bash 2>"$words") ;;
esac
eval "$hook"
activate=${conda##*/}
heard "$activate" activate ml || refuse 'the conda environment ml cannot be activated' "$conda"' env list, on a node'
[ -x "${CONDA_PREFIX-}/bin/python" ] || refuse 'the conda environment ml has no Python' "$conda"' install -n ml python'

version=$(python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse 'python in the conda environment ml is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$words" && refuse 'the conda environment ml has no python that could be run' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$words"
exec "$@"
