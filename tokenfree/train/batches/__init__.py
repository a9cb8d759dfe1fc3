"""From rows to arrays: the collator's protocol, framing, selection, targets, counter-based random numbers."""
