"""Run the stages of preprocessing on this machine, on Ray or on engines of Beam.

Nothing here knows about text.
"""
