"""What all packages stand on: errors, settings, storage, locks and files."""
