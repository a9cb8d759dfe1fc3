"""Models, objectives, data order, training loop, Ray Train and Ray Tune."""
