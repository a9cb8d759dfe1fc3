"""What `tokenfree cluster` does: Ray clusters by a profile or on this machine, and jobs on them."""
