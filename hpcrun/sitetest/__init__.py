"""Testing a site with a job: MPI, its speed, and each node's; what earlier tests found."""
