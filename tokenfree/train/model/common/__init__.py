"""What several parts of the model share: dense layers, dropout, heads, attention, biases, the BERT layer, costs."""
