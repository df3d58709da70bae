"""Every test of the channel gets real sockets."""

from wire import ends  # noqa: F401
