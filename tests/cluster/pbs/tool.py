"""qsub, qstat, qdel, pbsdsh and pbs_tmrsh, as a user has them: each asks the stand-in server, prints, and exits.

Run as `tool.py SOCKET NAME ARGUMENTS...`; the server listens at the socket, which lies in the folder all nodes share.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    where, name, *arguments = sys.argv[1:]
    question = {"tool": name, "argv": arguments, "environ": dict(os.environ)}
    if name == "qsub":
        question["script"] = script_of(arguments)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(where)
        except OSError:
            print(f"{name}: cannot connect to server ctl (errno=15010)", file=sys.stderr)
            return 255
        server.sendall(json.dumps(question).encode() + b"\n")
        if name == "pbsdsh":  # pbs_tmrsh has no signal handlers: TERM ends it, and its task runs on
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(signum, lambda *_: server.sendall(b"end\n"))
        with server.makefile("r") as reader:
            line = reader.readline()
    if not line:
        print(f"{name}: End of File", file=sys.stderr)
        return 255
    answer = json.loads(line)
    sys.stdout.write(answer["out"])
    sys.stderr.write(answer["err"])
    return answer["code"]


def script_of(arguments: list[str]) -> str:
    """The last word, if it is not an option: qsub reads the script itself, in the current folder."""
    return Path(arguments[-1]).read_text(errors="surrogateescape")


sys.exit(main())
