"""What starts the ranks of a node, or of the whole job, where our agents do not do it themselves. Pure."""

LAUNCHERS = ("ranks",)
