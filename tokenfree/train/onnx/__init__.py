"""A run's encoder, or its fine-tuned model, as a graph of ONNX for inputs of any length."""
