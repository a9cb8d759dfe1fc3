"""Wikipedia dumps: compressed streams cut into input splits, and the pages of one split."""
