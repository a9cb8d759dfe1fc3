"""What lies in a storage: its lock, hashes of files, JSON lines, and the files that are read back."""
