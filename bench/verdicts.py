"""The catalogue of injected failures: is the cause right, is the rank right, and how long does the verdict take?

Each case of scripts/verdicts/catalogue.py runs on two nodes with two ranks each. For a crash the seconds count from the
fault to the verdict, for a hang from the end of the hang timeout. `--on slurm` and `--on ssh` need root and what
tools/test installs.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from harness import SCRIPTS
from verdict_places import PLACES, Place, Record, unmet_need

sys.path.insert(0, str(SCRIPTS / "verdicts"))

from catalogue import CASES, Case, Kind

HANG_SECONDS = 4
COLUMNS = "{:<28} {:<34} {:>8} {:>6} {:>5}"


@dataclass(frozen=True, kw_only=True)
class Result:
    case: Case
    cause: str
    sentence: str
    seconds: float | None
    right_cause: bool
    right_rank: bool

    def row(self) -> str:
        took = "-" if self.seconds is None else f"{self.seconds:.1f}"
        return COLUMNS.format(self.case.name, self.cause or "-", took, _word(self.right_cause), _word(self.right_rank))

    @property
    def is_right(self) -> bool:
        return self.right_cause and self.right_rank


def _word(right: bool) -> str:
    return "yes" if right else "NO"


def flags_of(case: Case, launcher: str | None) -> list[str]:
    hang = ["--hang-timeout", f"{HANG_SECONDS}s"] if case.kind is Kind.HANG else []
    return [*hang, *(["--launcher", launcher] if launcher else [])]


def judge(case: Case, record: Record) -> Result:
    """Compares what the run recorded with what the catalogue expects."""
    error = record.slow if case.kind is Kind.SLOW else record.error
    text = "\n".join(map(str, (error.get("sentence", ""), *error.get("details", ()), error.get("error", ""))))
    named = list(error.get("ranks", ())) or [error.get("rank")]
    seconds = None
    if record.fault_time is not None and record.verdict_time is not None:
        seconds = record.verdict_time - record.fault_time - (HANG_SECONDS if case.kind is Kind.HANG else 0)
    return Result(
        case=case,
        cause=str(error.get("cause", "")),
        sentence=str(error.get("sentence", record.output[-300:])),
        seconds=seconds,
        right_cause=error.get("cause") == case.cause and bool(re.search(case.says, text, re.DOTALL)),
        right_rank=case.rank is None or named == [case.rank],
    )


def totals(results: Sequence[Result]) -> str:
    if not results:
        return "no case was run"
    causes, ranks, both = (
        100 * sum(right) / len(results)
        for right in zip(*((one.right_cause, one.right_rank, one.is_right) for one in results), strict=True)
    )
    measured = [one.seconds for one in results if one.seconds is not None]
    slowest = f"{max(measured):.1f} s" if measured else "not measured"
    return (
        f"{len(results)} cases: right cause {causes:.0f} %, right rank {ranks:.0f} %, both {both:.0f} %; "
        f"slowest verdict {slowest}"
    )


def run_case(place: Place, case: Case, launcher: str | None) -> Result:
    record = place.run(case, flags_of(case, launcher))
    result = judge(case, record)
    print(result.row())
    if not result.is_right:
        print(f"    expected {case.cause}, rank {case.rank}; verdict: {result.sentence}")
    sys.stdout.flush()
    return result


def chosen_cases(arguments: argparse.Namespace) -> list[Case]:
    kinds = {"hangs": Kind.HANG, "crashes": Kind.CRASH, "slow": Kind.SLOW}
    cases = [case for case in CASES if arguments.kind is None or case.kind is kinds[arguments.kind]]
    if not arguments.only:
        return cases
    return [case for case in cases if any(case.name.startswith(name) for name in arguments.only)]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose names start with NAME")
    parser.add_argument("--kind", choices=["hangs", "crashes", "slow"])
    parser.add_argument("--launcher", help="start the ranks with this launcher, for example torchrun")
    parser.add_argument("--on", choices=sorted(PLACES), default="local")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    print(COLUMNS.format("case", "verdict", "seconds", "cause", "rank"))
    results: list[Result] = []
    with PLACES[arguments.on]() as place:
        for case in chosen_cases(arguments):
            reason = unmet_need(case, arguments.on)
            if reason:
                print(f"{case.name:<28} not run: {reason}", flush=True)
            else:
                results.append(run_case(place, case, arguments.launcher))
    print(f"\n{totals(results)}")


if __name__ == "__main__":
    main()
