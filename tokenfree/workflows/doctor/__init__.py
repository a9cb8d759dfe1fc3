"""What `tokenfree doctor` looks at: this machine, and the nodes of a Ray cluster."""
