"""Pretrain CANINE and fine-tune it to find names: `python examples/names.py`.

It reads the demo's little corpus and made-up sentences. Put your own dump and tagged sentences in their place.
"""

# %%
import os
from itertools import product
from pathlib import Path

import tokenfree
from tokenfree.workflows.demo_corpus.corpus import write_demo_corpus

STEPS = int(os.environ.get("STEPS", "3000"))  # a few are enough to see that it runs
OUTPUT = Path("names")

# %%
# Text to shards, in windows that the tiny models can read. Of your own: wikipedia=["dumps/..."], books=["books/"]
corpus = write_demo_corpus(OUTPUT / "corpus")
config = tokenfree.Recipe.for_preprocessing("wikipedia-tiny", wikipedia=corpus.wikipedia, books=corpus.books)
manifest = tokenfree.run_preprocess(config, str(OUTPUT / "data"))
print(f"{manifest.splits['train'].rows:,} windows to train on")

# %%
# Pretraining. A cell or program that is run again resumes, or finds that all is done.
recipe = tokenfree.Recipe.from_name("canine-fast-tiny", train={"steps": STEPS})
pretrained = tokenfree.pretrain(recipe, str(OUTPUT / "data"), str(OUTPUT / "run"))
print(f"held-out loss {pretrained.validation_loss:.2f} nats")

# %%
# Tagged sentences: a word and its tag on a line, an empty line after a sentence. A fifth is for development.
PEOPLE = ("Anna", "Maria Silva", "George", "Tony Blair", "Amina", "Li Wei")
PLACES = ("London", "New York", "Kigali", "Lima", "Oslo")
FORMS = ("PER lives in LOC .", "Yesterday PER came back from LOC .", "In LOC we saw PER again .")


def tagged(form: str, **names: str) -> str:
    lines = []
    for word in form.split():
        first, *others = names.get(word, word).split()
        lines.append(f"{first}\tB-{word}" if word in names else f"{first}\tO")
        lines += [f"{part}\tI-{word}" for part in others]
    return "\n".join(lines) + "\n"


sentences = [tagged(form, PER=one, LOC=two) for form, one, two in product(FORMS, PEOPLE, PLACES)]
train, dev = OUTPUT / "train.conll", OUTPUT / "dev.conll"
dev.write_text("\n".join(sentences[::5]), encoding="utf-8")
train.write_text("\n".join(x for i, x in enumerate(sentences) if i % 5), encoding="utf-8")

# %%
# Fine-tuning begins with the pretrained weights.
task = tokenfree.Recipe.for_finetuning("ner", train={"steps": STEPS // 2})
run = OUTPUT / "run"
result = tokenfree.finetune(task, {"train": train, "dev": dev}, str(OUTPUT / "ner"), init_from=run)
print({name: round(score, 3) for name, score in result.dev.items()})

# %%
(names,) = tokenfree.predict(str(OUTPUT / "ner"), ["George Bush met Tony Blair in London ."])
for span in names["spans"]:
    print(span["label"], span["text"])
