"""What one worker of a run does from start to finish, and what rank 0 writes."""
