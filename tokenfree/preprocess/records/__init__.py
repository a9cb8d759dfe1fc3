"""The small records that travel through a job: pages, documents, input splits, wikis."""
