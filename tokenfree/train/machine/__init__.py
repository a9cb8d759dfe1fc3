"""What this machine has: its CPUs, its processes, the folder of the cache."""
