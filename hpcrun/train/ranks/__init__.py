"""The ranks of a job: number, hosts and devices, synchronization, and failures."""
