"""What watches a command from outside: figures for Prometheus, and word of how it ended."""
