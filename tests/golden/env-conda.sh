#!/bin/bash
# gpt: enters the environment on a node, then runs the given command
error_file=$1 # the file that gets the reason if this node cannot start
shift
run_logged() { # runs a command and keeps its stderr for the verdict
  "$@" 2>"$error_file"
  set -- $?
  cat "$error_file" >&2
  return "$1"
}
refuse() { # prints what is wrong and what to type next, and exits
  printf 'error: %s\n  try   %s\n' "$1" "$2" >>"$error_file"
  printf 'error: %s\n  try   %s\n' "$1" "$2" >&2
  trap - EXIT
  exit 78
}

: >"$error_file"

# The conda environment
for conda in "${CONDA_EXE-}" "${MAMBA_EXE-}" "$(type -P conda)" "$(type -P micromamba)" "$(type -P mamba)" "$HOME/miniforge3/bin/conda" "$HOME/mambaforge/bin/conda" "$HOME/miniconda3/bin/conda" "$HOME/anaconda3/bin/conda" "$HOME/.local/bin/micromamba" /opt/conda/bin/conda; do
  [ -x "$conda" ] && break
  conda=
done
[ -n "$conda" ] || refuse 'this node has neither conda nor micromamba' '--modules NAME that provides one, or CONDA_EXE=PATH in --setup'
case ${conda##*/} in
  conda*) hook=$("$conda" shell.bash hook 2>"$error_file") ;;
  *) hook=$("$conda" shell hook --shell bash 2>"$error_file") ;;
esac
eval "$hook"
activate=${conda##*/}
run_logged "$activate" activate ml || refuse 'the conda environment ml cannot be activated' "$conda"' env list, on a node'
[ -x "${CONDA_PREFIX-}/bin/python" ] || refuse 'the conda environment ml has no Python' "$conda"' install -n ml python'

version=$(python -ISc 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))' 2>&1)
case $? in
  0) ;;
  9) refuse 'python in the conda environment ml is Python '"$version"', and 3.10 is needed' '--python PATH names another one; Python 3.10 and torch are needed' ;;
  *) echo "$version" >>"$error_file" && refuse 'cannot run python in the conda environment ml' '--python PATH names another one; Python 3.10 and torch are needed' ;;
esac
rm -f "$error_file"
exec "$@"
