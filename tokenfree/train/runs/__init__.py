"""A run on disk or in a store: config, folder, locks, checkpoints, metrics, trackers."""
