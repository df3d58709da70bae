"""`--modules`: loaded by the site's own `module`, which a shell without a login has to be given first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon.command import variable, words
from echelon.environments.entry import refuse

INITS = (
    *('"${MODULESHOME-}/init/bash"', '"${LMOD_PKG-}/init/bash"', "/etc/profile.d/modules.sh", "/etc/profile.d/lmod.sh"),
    *("/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash"),
)


def module_lines(names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    name = variable("name")
    yield from ("", "# The modules, with the shell's own way to load them")
    yield f"for init in {' '.join(INITS)}; do"
    yield "  type module >/dev/null 2>&1 && break"
    yield "  # shellcheck disable=SC1090  # wherever the site has it"
    yield '  [ -r "$init" ] && . "$init"'
    yield "done"
    hint = "MODULESHOME=DIR, or a line of --setup that brings `module` along"
    yield f"type module >/dev/null 2>&1 || {refuse('this node has no `module`', hint)}"
    cannot = refuse(f"the module {name} cannot be loaded", f"module avail {name}, on a node")
    yield "load() {"
    yield "  name=$1 before=${LOADEDMODULES-}"
    yield f'  heard module load "$name" || {cannot}'
    yield "  # old versions say 0 whatever happens: then they complained, and nothing is loaded that was not before"
    yield '  case ":${LOADEDMODULES-}:" in'
    yield '    *":$name:"* | *":$name/"*) ;;'
    yield f'    ":$before:") [ ! -s "$words" ] || {cannot} ;;'
    yield "  esac"
    yield "}"
    yield from (words("load", one) for one in names)
