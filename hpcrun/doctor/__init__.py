"""The doctor: checks of a site on its cluster, discovery of site files, and benchmarks of a site."""
