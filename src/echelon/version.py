"""The version, in its own file so that the build can read it without an import."""

__version__ = "0.1.0"
