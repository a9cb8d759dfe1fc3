"""One model on many devices: alone, copied (DDP), sharded (FSDP2), compiled, recomputed; whole state, collectives."""
