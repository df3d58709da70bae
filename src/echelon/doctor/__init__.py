"""`echelon doctor`: checks of this machine and of the nodes of a job. Node side: standard library only."""
