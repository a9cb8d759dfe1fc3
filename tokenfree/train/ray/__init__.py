"""The workers of a run under Ray Train: session, child process, driver, callbacks, process group."""
