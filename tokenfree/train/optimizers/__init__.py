"""Optimizers, one per file, chosen by `train.optimizer.name`. `Config.build` returns a torch optimizer."""
