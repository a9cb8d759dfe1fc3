"""What a run starts from besides fresh weights: given ones, or its own end when it is made longer."""
