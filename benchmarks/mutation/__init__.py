"""Mutation testing of the model's equations: `make mutate` says which share of small mistakes some test notices."""
