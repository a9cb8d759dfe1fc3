"""The sections of reports: corpus, run, sweep, and comparisons."""
