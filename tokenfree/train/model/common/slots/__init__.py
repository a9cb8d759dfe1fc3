"""The contracts of the model's slots: what the `Config` of a part and the module that it builds must have."""
