"""What analyses found, as files: the numbers, and pictures of them."""
