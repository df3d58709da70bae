"""Finds the traps in hand-written sbatch and PBS scripts. Reads text, starts nothing."""
