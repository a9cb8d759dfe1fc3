"""What a finished job keeps so that a later one does again only what changed, and how that one takes it."""
