"""The training loop: task, step, validation, loss spikes, average of the weights, utilisation."""
