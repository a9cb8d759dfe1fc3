"""A run's encoder as a graph of ONNX, for inputs of any length."""
