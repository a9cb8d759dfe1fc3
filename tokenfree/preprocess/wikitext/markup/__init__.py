"""The families of marks of wikitext, one linear pass each."""
