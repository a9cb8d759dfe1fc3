"""What templates stand for: their braces, arguments, and the rules that turn them into words."""
