"""Prints what a script can find out about how it was started."""

import atexit
import inspect
import json
import multiprocessing
import os
import pickle
import sys
import threading


class Local:
    def __reduce__(self):
        return (Local, ())


def square(x):
    return x * x


def facts():
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv,
        "path0": sys.path[0],
        "file": main.__file__,
        "name": __name__,
        "spec": str(getattr(main, "__spec__", None)),
        "package": getattr(main, "__package__", "missing"),
        "doc": __doc__,
        "main_is_this": main.square is square,
        "pickle": pickle.loads(pickle.dumps(Local())).__class__ is Local,  # noqa: S301  our own class
        "source": "def square" in inspect.getsource(square),
        "cwd": os.getcwd(),  # noqa: PTH109
        "executable": sys.executable,
        "main_thread": threading.current_thread() is threading.main_thread(),
        "stdin": sys.stdin.read(),
        "umask": os.umask(0o022) and None,
    }


def pools():
    results = {}
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            results[method] = pool.map(square, [3])
    return results


if __name__ == "__main__":
    atexit.register(lambda: print("atexit ran", flush=True))
    threading.Thread(target=lambda: print("thread ran", flush=True)).start()
    print(json.dumps({**facts(), "pools": pools()}), flush=True)
