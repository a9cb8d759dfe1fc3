"""A self-contained HTML page about runs, sweeps and data directories, with tables and figures but no scripts."""
