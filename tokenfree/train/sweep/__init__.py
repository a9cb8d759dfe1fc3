"""Searches over recipe keys: comparable trials under Ray Tune, that end in a table and a recipe ready to pretrain."""
