"""Echelon: one PyTorch script, every GPU you can reach, one command, and it keeps running."""

from echelon.runtime.notice import notice_given
from echelon.runtime.progress import report
from echelon.version import __version__

__all__ = ["__version__", "notice_given", "report"]
