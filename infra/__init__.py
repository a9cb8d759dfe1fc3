"""Profiles and manifests for machines: files, and no code."""
