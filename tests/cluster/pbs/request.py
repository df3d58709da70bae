"""The request of a job: qsub's options and the `#PBS` lines of its script, parsed as qsub does."""

from __future__ import annotations

from dataclasses import dataclass, field

TAKES_VALUE = set("aAcCeJkKlmMNojopPqrRSuvW")
RESOURCES = {"select", "place", "walltime", "ncpus", "ngpus", "mem", "nodes", "software"}
CHUNK_RESOURCES = {"ncpus", "ngpus", "mem", "mpiprocs", "host"}
UNKNOWN_RESOURCE = 187


class Refused(Exception):  # noqa: N818  an answer
    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass
class Request:
    known: set[str]
    options: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def chunks(self) -> list[dict[str, str]]:
        """One chunk per select part; without a select the whole request is one chunk."""
        if "select" not in self.resources:
            return [{name: self.resources[name] for name in ("ncpus", "ngpus", "mem") if name in self.resources}]
        count, _, rest = self.resources["select"].partition(":")
        chunk = dict(part.split("=", 1) for part in rest.split(":") if part)
        return [chunk] * int(count)


def words_of(line: str) -> list[str]:
    """As make_argv in qsub.c: quotes of either kind, which hide all but themselves, and a backslash outside of them."""
    words, word, quote, started = [], "", "", False
    letters = iter(line)
    for letter in letters:
        if quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter in "\"'":
            quote, started = letter, True
        elif letter == "\\":
            word, started = word + next(letters, ""), True
        elif letter.isspace():
            words += [word] if started or word else []
            word, started = "", False
        else:
            word += letter
    if quote:
        raise Refused(1, f"qsub: unmatched {quote}")
    return [*words, word] if started or word else words


def parse(argv: list[str], script: str, environ: dict[str, str], known: set[str]) -> Request:
    """The command line wins over the script; resources and attributes do so one by one.

    `known` are the resources that a job may ask for.
    """
    request = Request(known=known)
    for line in reversed(_directives(script)):
        _take(request, words_of(line), environ)
    _take(request, argv[:-1], environ)
    return request


def _directives(script: str) -> list[str]:
    """Up to the first line that is neither a comment nor empty."""
    lines = []
    for line in script.splitlines():
        if line.startswith("#PBS"):
            lines.append(line[4:])
        elif line.strip() and not line.startswith("#"):
            break
    return lines


def _take(request: Request, words: list[str], environ: dict[str, str]) -> None:
    words = list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-") or len(word) < 2 or word[1] not in TAKES_VALUE | set("hIVXz"):
            raise Refused(2, "usage: qsub [-a date_time] [-A account_string] ...")
        letter, value = word[1], word[2:]
        if letter in TAKES_VALUE and not value:
            value = words.pop(0) if words else ""
        match letter:
            case "l":
                _take_resources(request, value)
            case "W":
                request.attributes.update(part.split("=", 1) for part in value.split(","))
            case "v":
                names = (part.partition("=") for part in value.split(","))
                request.variables |= {n: v if equals else environ.get(n, "") for n, equals, v in names}
            case _:
                request.options[letter] = value


def _take_resources(request: Request, value: str) -> None:
    for part in value.split(","):
        name, _, text = part.partition("=")
        if name not in request.known:
            raise Refused(UNKNOWN_RESOURCE, f"qsub: Unknown resource Resource_List.{name}")
        for inner in text.split(":")[1:] if name == "select" else ():
            if inner.partition("=")[0] not in CHUNK_RESOURCES:
                raise Refused(UNKNOWN_RESOURCE, f"qsub: Unknown resource: {inner.partition('=')[0]}")
        request.resources[name] = text
