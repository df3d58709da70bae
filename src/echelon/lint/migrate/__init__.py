"""The `echelon run` command that replaces a script, and what it does not carry over."""
