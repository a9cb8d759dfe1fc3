"""Whole commands on damaged files, killed, without room, and with a store that fails: `make fuzz`."""
