"""Linear paths beside the encoder, one file each: hashed n-grams of a span and around it, added to a head's scores."""
