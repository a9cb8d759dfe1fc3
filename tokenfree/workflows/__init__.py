"""The commands, recipes and reports: the only place that names both halves, `pipelines` and `train`."""
