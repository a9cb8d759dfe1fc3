"""The base of all other packages: errors, settings, storage, locks and files."""
