"""What every part stands on: errors, settings, storage, local files, retries."""
