"""What plans of runs and jobs say."""
