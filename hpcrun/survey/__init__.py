"""What a machine says of its cluster, and a first site file made of that."""
