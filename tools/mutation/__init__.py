"""Mutation testing of the model's equations: `make mutate` prints the share of small mistakes that tests notice."""
