"""The ranks of a job: their number and place, synchronization, and what happens when one fails."""
