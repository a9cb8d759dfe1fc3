"""Import and export of weights and folders of the library transformers, and export to ONNX."""
