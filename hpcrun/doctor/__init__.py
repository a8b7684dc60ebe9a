"""The doctor: whether this cluster is as its site file says, asked on the login node and in a short job."""
