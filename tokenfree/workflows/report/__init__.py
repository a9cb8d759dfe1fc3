"""One self-contained HTML page about runs, sweeps and data directories: tables and pictures, no script, no network."""
