"""The ranks of a job: who they are, how they wait for each other, and what happens when one fails."""
