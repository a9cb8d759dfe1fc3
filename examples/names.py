"""Pretrain CANINE on one Wikipedia and fine-tune it to find names: `python examples/names.py`.

FOLDER holds a dump of the English Wikipedia and sentences with tagged names. Change the paths to your own.
"""

# %%
import os
from pathlib import Path

import tokenfree

FOLDER = Path(os.environ.get("TOKENFREE_TEST_DATA", "data"))
DUMP = FOLDER / "wiki-dumps" / "enwiki-2016-shortened.xml.bz2"
TAGGED = FOLDER / "ner-uner-english-ewt" / "en_ewt-ud-dev.iob2"
STEPS = int(os.environ.get("STEPS", "3000"))  # a few are enough to see that it runs
OUTPUT = Path("names")

# %%
# Text to shards, in windows that the tiny models can read.
config = tokenfree.Recipe.for_preprocessing("wikipedia-tiny", wikipedia=[str(DUMP)])
manifest = tokenfree.run_preprocess(config, str(OUTPUT / "data"))
print(f"{manifest.splits['train'].rows:,} windows to train on")

# %%
# Pretraining. A cell or program that is run again resumes, or finds that all is done.
recipe = tokenfree.Recipe.from_name("canine-fast-tiny", train={"steps": STEPS})
pretrained = tokenfree.pretrain(recipe, str(OUTPUT / "data"), str(OUTPUT / "run"))
print(f"held-out loss {pretrained.validation_loss:.2f} nats")

# %%
# The tagged sentences, a fifth of them for development.
sentences = TAGGED.read_text(encoding="utf-8").strip().split("\n\n")
files = {}
for split, part in (("train", sentences[len(sentences) // 5 :]), ("dev", sentences[: len(sentences) // 5])):
    path = OUTPUT / f"{split}.iob2"
    path.write_text("\n\n".join(part) + "\n", encoding="utf-8")
    files[split] = str(path)

# %%
# Fine-tuning begins with the pretrained weights.
task = tokenfree.Recipe.for_finetuning("ner", train={"steps": STEPS // 2})
found = tokenfree.finetune(task, files, str(OUTPUT / "ner"), init_from=str(OUTPUT / "run"))
print({name: round(score, 3) for name, score in found.dev.items()})

# %%
(names,) = tokenfree.predict(str(OUTPUT / "ner"), ["George Bush met Tony Blair in London ."])
for span in names["spans"]:
    print(span["label"], span["text"])
