"""Search three hyperparameters of a small CANINE, then pretrain with the best: `python examples/sweep.py`.

It reads the demo's little corpus. Put your own dump in its place.
"""

# %%
import os
from pathlib import Path

import tokenfree
from tokenfree.workflows.demo_corpus.corpus import write_demo_corpus

STEPS = int(os.environ.get("STEPS", "600"))  # of a trial; a few are enough to see that it runs
OUTPUT = Path("sweep")

# %%
# Of your own: wikipedia=["dumps/..."], books=["books/"]
corpus = write_demo_corpus(OUTPUT / "corpus")
config = tokenfree.Recipe.for_preprocessing("wikipedia-tiny", wikipedia=corpus.wikipedia, books=corpus.books)
tokenfree.run_preprocess(config, str(OUTPUT / "data"))

# %%
# Any key of a recipe can be searched. ASHA stops the worse trials early. `tokenfree sweep` reads the same
# file.
RECIPE = OUTPUT / "search.yaml"
RECIPE.write_text("""\
base: canine-fast-tiny
space:
  train.learning_rate: {log_uniform: [0.0005, 0.005]}
  model.downsampler.rate: {integer: [2, 6]}
  model.embedder.buckets: {choice: [500, 1000, 2000]}
scheduler: {name: asha, grace: 1, reduction: 2}
reports: 3
""")
sweep = tokenfree.Recipe.for_sweep(str(RECIPE), trials=4, budget={"steps": STEPS})
result = tokenfree.sweep(sweep, str(OUTPUT / "data"), str(OUTPUT / "trials"))

# %%
for trial in result.trials:
    print(trial.name, trial.values, f"held-out loss {trial.last['validation_loss']:.3f}")
assert result.best is not None
print("best:", result.best.name)

# %%
# best.yaml is a recipe: the base with the best values.
recipe = tokenfree.Recipe.from_name(str(OUTPUT / "trials" / "best.yaml"), train={"steps": STEPS})
pretrained = tokenfree.pretrain(recipe, str(OUTPUT / "data"), str(OUTPUT / "best"))
print(f"held-out loss {pretrained.validation_loss:.3f} nats")
