"""Optimizers, one a file; `train.optimizer.name` chooses among them. `Config.build` gives a torch optimizer."""
