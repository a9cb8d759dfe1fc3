"""What vectors of single words know of spelling: pairs of words from UniMorph, and two measures of their likeness."""
