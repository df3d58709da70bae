"""What containers see: mounts, image names, and variables that describe the host; and `--container-exec COMMAND`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from echelon.environments import Entry
from echelon.job import Job
from echelon.record import record
from echelon.shell import quote_words, shell_variable

HOST_NAMES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "MAIL",
    "HOSTNAME",
    "TERM",
    "TMPDIR",
    "TMP",
    "TEMP",
    "DISPLAY",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "MANPATH",
    "INFOPATH",
    "BASH_ENV",
    "ENV",
    "LS_COLORS",
    "LOADEDMODULES",
    "_LMFILES_",
    "CPATH",
    "LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "CMAKE_PREFIX_PATH",
)
RUNTIME_PREFIXES = ("ENROOT_", "APPTAINER_", "SINGULARITY_")
"""Settings of the container runtimes themselves."""
HOST_PREFIXES = (
    "LD_",
    "XDG_",
    "DBUS_",
    "SSH_",
    "CONDA_",
    "MAMBA_",
    "MODULE",
    "LMOD_",
    "__LMOD",
    "__MODULES",
    "BASH_FUNC_",
    *RUNTIME_PREFIXES,
)
ENCODED_VARIABLE = "ECHELON_ENCODED"
"""Variable that carries, in base64, the variables whose values a container runtime would change."""


def describes_host(name: str) -> bool:
    return name in HOST_NAMES or name.startswith(HOST_PREFIXES)


def runtime_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `--set` that are also set for the container runtime and its hooks, before the command starts."""
    return {
        name: value for name, value in environ.items() if name.startswith(RUNTIME_PREFIXES) or not describes_host(name)
    }


def host_case_pattern() -> str:
    """Pattern of a shell's `case` that matches the variables that describe a host."""
    return " | ".join((*HOST_NAMES, *(f"{beginning}*" for beginning in HOST_PREFIXES)))


IMAGE_SUFFIXES = (".sqsh", ".squashfs", ".sif", ".simg", ".img")
APPTAINER_ADDRESS = r"[a-z+-]+://|(oci|oci-archive|docker-archive|docker-daemon):"
"""Addresses as apptainer recognises them. It treats any other name as a file or folder."""


def is_image_address(image: str, environment: str) -> bool:
    """True for `docker://ubuntu`. With pyxis also for `nvcr.io#nvidia/pytorch:24.01` and `ubuntu:22.04`: there, files
    start with a slash, a dot or a tilde, or have an ending of an image file."""
    if environment in ("apptainer", "singularity"):
        return re.match(APPTAINER_ADDRESS, image) is not None
    if re.match(r"[a-z+]+://", image):
        return True
    return not image.endswith(IMAGE_SUFFIXES) and not image.startswith(("/", "./", "../", "~"))


@record
class Mount:
    source: str
    target: str
    read_only: bool = False

    def option_value(self, read_only: str = ":ro") -> str:
        """`read_only` is the suffix of a mount that must not be written to."""
        return f"{self.source}:{self.target}{read_only if self.read_only else ''}"


def parse_mount(text: str) -> Mount:
    """Parses `SRC:DST`, `SRC:DST:ro`, or `DIR` for the same path on both sides. Raises ValueError."""
    source, *rest = text.split(":")
    flags = rest[1:] if len(rest) > 1 else []
    if len(rest) > 2 or flags not in ([], ["ro"], ["rw"]):
        raise ValueError("it must be SRC:DST or SRC:DST:ro, without other colons")
    target = rest[0] if rest else source
    if not source or not target.startswith("/"):
        raise ValueError("SRC must be a path on this machine, and DST an absolute path in the container")
    if any(letter.isspace() or letter == "," for letter in text):
        raise ValueError("container runtimes cannot mount a path with a space or a comma")
    return Mount(source=source, target=target, read_only=flags == ["ro"])


def job_mounts(job: Job) -> list[Mount]:
    return [parse_mount(text) for text in job.enclosure.mounts]


def mount_lines(job: Job, flag: str, read_only: str) -> Iterator[str]:
    """Lines of bash that fill the array `mounts` with one flag per mount."""
    run, folder = shell_variable("run"), shell_variable("ECHELON_FOLDER")
    yield "run=${0%/*}"
    yield "mounts=()"
    yield f"[ ! -d {quote_words(job.cwd)} ] || mounts+=({quote_words(flag, f'{job.cwd}:{job.cwd}')})"
    yield f"mounts+=({quote_words(flag, f'{run}:{run}')})"
    yield f'[ -z "${{ECHELON_FOLDER-}}" ] || mounts+=({quote_words(flag, f"{folder}:{folder}")})'
    yield from (f"mounts+=({quote_words(flag, mount.option_value(read_only))})" for mount in job_mounts(job))


def source_check_lines(mounts: Sequence[Mount], refuse_source: str) -> Iterator[str]:
    """Lines of bash that check that each source exists. If `$source` does not, the command `refuse_source` runs."""
    for mount in mounts:
        yield f"source={quote_words(mount.source)}"
        yield f'[ -e "$source" ] || {refuse_source}'


PLACEHOLDERS = {"{run}": shell_variable("run"), "{cwd}": shell_variable("cwd")}
"""Placeholders in the command: the run's folder and the working directory. The container has to mount both."""


def entry(job: Job) -> Entry:
    """`--container-exec`: the given command runs the rest of its arguments in a container of any kind."""
    return Entry(
        place=f"the container of {job.enclosure.prefix[0]}",
        lines=(
            "",
            "# The container",
            f"run=${{ECHELON_FOLDER:-${{0%/*}}}} cwd={quote_words(job.cwd)}",
            '[ -d "$cwd" ] || cwd=$run # over ssh it may be missing',
        ),
        wrapper=tuple(map(_fill_placeholders, job.enclosure.prefix)),
    )


def _fill_placeholders(word: str) -> str:
    for name, place in PLACEHOLDERS.items():
        word = word.replace(name, place)
    return word
