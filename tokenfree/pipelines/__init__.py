"""Run the stages of preprocessing on this machine, on Ray or on engines of Beam.

Nothing here knows about text.
"""

if __name__ != "tokenfree.pipelines":  # a second copy of every module, whose classes are others
    raise ImportError(
        "`pipelines` is a link for readers into tokenfree/. Import tokenfree.pipelines instead."
    )
