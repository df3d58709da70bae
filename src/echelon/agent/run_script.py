"""Runs the user's script in this process as `python script` would, and records how it fails."""

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
MAX_MESSAGE_CHARS = 4_000
MAX_TRACEBACK_CHARS = 32_000


def run_as_main(script: Script, error_file: Path, stacks_file: Path | None, fatal_file: Path | None = None) -> None:
    """Runs the script. Returns when it ends normally. Raises SystemExit or KeyboardInterrupt for the interpreter."""
    if stacks_file is not None:
        _dump_stacks_on_signal(stacks_file)
    if fatal_file is not None:
        _dump_stack_on_crash(fatal_file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # Python buffers whole blocks for a pipe by default
    try:
        _run_and_close_checkpoints(_prepare_script(script))
    except SystemExit as end:
        _record_exit_text(end, error_file)
        raise
    except BaseException as error:
        _report_exception(error, error_file)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_: None  # already printed; the interpreter still exits by SIGINT
            raise
        sys.exit(1)


def _run_and_close_checkpoints(run: Callable[[], object]) -> None:
    """A script that succeeds without closing its Checkpoint still fails if its last save failed."""
    try:
        run()
    except SystemExit as end:
        if end.code in (None, 0):
            _close_checkpoints()
        raise
    _close_checkpoints()


def _close_checkpoints() -> None:
    """Does nothing unless the script imported the library, in a version that can do it."""
    library = sys.modules.get("echelon.train.checkpoint.api")
    close: Callable[[], None] = getattr(library, "close_open_checkpoints", lambda: None)
    close()


def _dump_stacks_on_signal(path: Path) -> None:
    faulthandler.register(STACKS_SIGNAL, file=_open_for_append(path), all_threads=True, chain=False)


def _dump_stack_on_crash(path: Path) -> None:
    """Makes SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT write the Python stack into the file.

    Has no effect if the user asked for the stack on stderr with PYTHONFAULTHANDLER.
    """
    if not faulthandler.is_enabled():
        faulthandler.enable(file=_open_for_append(path), all_threads=True)


def _open_for_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _record_exit_text(end: SystemExit, error_file: Path) -> None:
    """Records the text of sys.exit("text"), which the interpreter prints. A number or None is no text."""
    if end.code is None or isinstance(end.code, int):
        return
    try:
        text = str(end.code)
    except Exception:  # noqa: BLE001  the user's own __str__ may raise anything
        return
    _write_record(
        error_file, time=time.time(), type=SystemExit.__name__, message=text[:MAX_MESSAGE_CHARS], traceback=""
    )


def _report_exception(error: BaseException, error_file: Path) -> None:
    """Records the traceback for the verdict and prints it as `python script` does, without the frames of this file."""
    moment = time.time()
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == _run_file.__code__.co_filename:
        own = own.tb_next
    error.__traceback__ = own
    _write_error_file(error, moment, error_file)
    sys.excepthook(type(error), error, own)


def _write_error_file(error: BaseException, moment: float, error_file: Path) -> None:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = "".join(traceback.format_exception(kind, error, error.__traceback__))
    message = _exception_message(error)[:MAX_MESSAGE_CHARS]
    _write_record(error_file, time=moment, type=name, message=message, traceback=text[-MAX_TRACEBACK_CHARS:])


def _write_record(error_file: Path, **record: float | str) -> None:
    try:
        error_file.write_text(json.dumps(record))
    except OSError:
        pass  # the text is still in the log


def _exception_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the user's own __str__ may raise anything
        return "<its __str__ failed>"


def _prepare_script(script: Script) -> Callable[[], object]:
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
    _run_code(code, None, __file__=path, __loader__=loader, __spec__=None, __package__=None)


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
    attributes = {"__file__": found.origin, "__loader__": found.loader, "__spec__": found, "__package__": found.parent}
    _run_code(code, found.cached, **attributes)


def _run_code(code: types.CodeType, cached: str | None, **attributes: object) -> None:
    """Runs the code in a new __main__ module, as pickle, multiprocessing and inspect expect."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, **attributes)
    if sys.version_info < (3, 14):  # later Pythons compute it, unless it is set
        main.__annotations__ = {}
    if sys.version_info < (3, 15):  # later Pythons do not set it
        main.__dict__["__cached__"] = cached
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102  this is the user's script
