"""Modules that several parts of the model share: base classes, dense layers, dropout, attention, position biases."""
