"""Text to features: dumps and books in, sharded Arrow windows out. No Beam, no torch, no ray."""
