"""Every test of the channel gets real sockets."""

from frames import ends  # noqa: F401
