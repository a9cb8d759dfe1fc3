"""Implementation of `tokenfree cluster`: Ray clusters from a profile or on this machine, and jobs on them."""
