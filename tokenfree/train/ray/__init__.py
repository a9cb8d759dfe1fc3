"""The workers of a run under Ray Train: session, launch, trainer, scaling, channel, errors, environment."""
