"""Runs the user's script in this process exactly as `python script` would, and keeps its last words."""

from __future__ import annotations

import faulthandler
import importlib.machinery
import importlib.util
import io
import json
import os
import pkgutil
import runpy
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path

from echelon.job import Script, ScriptKind

STACKS_SIGNAL = signal.SIGRTMAX - 1  # no library is known to use it, unlike USR1 and USR2
MAX_TRACEBACK_CHARS = 32_000


def run_as_main(script: Script, error_file: Path, stacks_file: Path | None) -> None:
    """Returns when the script has run off its end; raises what an interpreter's top level expects."""
    if stacks_file is not None:
        _dump_stacks_on_signal(stacks_file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # live, although it is a pipe
    try:
        _prepare(script)()
    except SystemExit:
        raise
    except BaseException as error:
        _last_words(error, error_file)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_: None  # said already; the interpreter still dies of SIGINT
            raise
        sys.exit(1)


def _dump_stacks_on_signal(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True, chain=False)


def _last_words(error: BaseException, error_file: Path) -> None:
    """The traceback as `python script` prints it, without our frames, and the same for the verdict."""
    moment = time.time()
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == _run_file.__code__.co_filename:
        own = own.tb_next
    error.__traceback__ = own
    _record(error, moment, error_file)
    sys.excepthook(type(error), error, own)


def _record(error: BaseException, moment: float, error_file: Path) -> None:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = "".join(traceback.format_exception(kind, error, error.__traceback__))
    record = {
        "time": moment,
        "type": name,
        "message": _said(error)[:4000],
        "traceback": text[-MAX_TRACEBACK_CHARS:],
    }
    try:
        error_file.write_text(json.dumps(record))
    except OSError:
        pass  # the traceback is in the log all the same


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the user's own __str__ may raise anything
        return "<its __str__ failed>"


def _prepare(script: Script) -> Callable[[], object]:
    if script.kind is ScriptKind.MODULE:
        return _prepare_module(script)
    path = script.target
    sys.argv = [path, *script.args]
    if pkgutil.get_importer(path) is not None:  # a zip file or a folder with a __main__.py
        sys.path.pop(0)
        return lambda: runpy.run_path(path, run_name="__main__")
    sys.path[0] = str(Path(path).resolve().parent)
    return lambda: _run_file(str(Path(path).absolute()))


def _run_file(path: str) -> None:
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    _run_code(code, __file__=path, __loader__=loader, __spec__=None, __package__=None)


def _prepare_module(script: Script) -> Callable[[], object]:
    sys.path[0] = str(Path.cwd())
    sys.argv = ["-m", *script.args]
    return lambda: _run_module(script.target)


def _run_module(name: str) -> None:
    found = importlib.util.find_spec(name)
    if found is not None and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{name}.__main__")
    if found is None or found.loader is None or found.origin is None:
        raise ImportError(f"No module named {name}")
    code = found.loader.get_code(found.name)  # type: ignore[attr-defined]
    sys.argv[0] = found.origin
    _run_code(
        code, __file__=found.origin, __loader__=found.loader, __spec__=found, __package__=found.parent,
        __cached__=found.cached,
    )  # fmt: skip


def _run_code(code: types.CodeType, **attributes: object) -> None:
    """A fresh __main__, so that pickle, multiprocessing and inspect find what they expect there."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={}, **attributes)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102  running the user's script is what we are for
