"""Entry point of `echelon` and `python -m echelon`."""

import gc
import signal

gc.disable()  # short commands need no garbage collection; commands that follow a run enable it
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback
from echelon.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
