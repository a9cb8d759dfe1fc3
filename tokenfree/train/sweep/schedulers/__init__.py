"""Schedulers: which trials go on after a report. A variant is one file with a `Config` that is a `Scheduler`."""
