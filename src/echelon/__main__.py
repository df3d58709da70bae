"""Where `echelon` and `python -m echelon` begin."""

import gc

gc.disable()  # a command that lives for milliseconds has no garbage; those that follow a run turn it on again
from echelon.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
