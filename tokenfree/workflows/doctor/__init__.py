"""Checks of `tokenfree doctor`: this machine, and the nodes of a Ray cluster."""
