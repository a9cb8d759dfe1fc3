"""From documents to shards: sorted runs, their merge, the plan, the sample for the vocabulary, the build."""
