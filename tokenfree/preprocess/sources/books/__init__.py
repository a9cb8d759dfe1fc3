"""Books: files, tables and Hugging Face datasets to paragraphs of text."""
