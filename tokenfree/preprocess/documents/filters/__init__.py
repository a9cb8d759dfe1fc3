"""Which documents are dropped, one filter a file, and the reasons that are counted."""
