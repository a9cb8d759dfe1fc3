"""Fixed samples of windows and of hidden pieces with their guesses, for the terminal and for the report."""
