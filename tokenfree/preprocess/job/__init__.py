"""A preprocessing job: its identity, its directory, its steps, and the replay of failed pages."""
