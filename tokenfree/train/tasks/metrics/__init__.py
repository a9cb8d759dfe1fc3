"""What predictions of tasks are worth: scores of labels, numbers, tags and spans."""
