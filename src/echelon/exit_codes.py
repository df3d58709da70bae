"""Exit codes beyond the error tree's own (errors.py): what a run, or a part of the node side, can end with.

A rank's own code is passed on as it is, a signal as shells say it: 128 and its number.
"""

TIME_LIMIT = 124  # what timeout(1) says
REQUEUE = 75  # EX_TEMPFAIL: "stop here, and schedule me again"
LEASE_HELD = 73  # EX_CANTCREAT: another supervisor of this run is alive
NO_VERDICT = 70  # EX_SOFTWARE: the run is lost, or we failed ourselves
NOT_ENTERED = 78  # EX_CONFIG: node.sh could not take a node into the environment
CANNOT_EXECUTE = 126  # what shells say
NOT_FOUND = 127
