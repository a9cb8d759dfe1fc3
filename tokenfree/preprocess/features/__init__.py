"""Windows with their columns: the schema, the columns, the subword vocabulary."""
