"""What a sweep came to: results of trials, comparisons, effects of settings, tables."""
