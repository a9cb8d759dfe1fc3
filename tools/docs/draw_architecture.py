"""Draw docs/images/architecture.svg from the folders of tokenfree/: python -m tools.docs.draw_architecture."""

import textwrap

import matplotlib.patches
from matplotlib.figure import Figure

from tools import REPOSITORY

SOURCE = REPOSITORY / "tokenfree"
PICTURE = REPOSITORY / "docs" / "images" / "architecture.svg"
# package: x, y, width and colour; a package imports only from packages drawn below it
BOXES = {"workflows": (0, 3, 4, "#dbe9f6"), "pipelines": (0, 2, 1.55, "#fde3c8"), "train": (1.65, 2, 2.35, "#d9f0dd"),
         "preprocess": (0, 1, 4, "#f6e0ea"), "core": (0, 0, 4, "#e6e6e6")}  # fmt: skip


def draw() -> None:
    """Write the picture: a box for each package with the names of its folders or files."""
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "tokenfree", "font.family": "sans-serif"}
    )
    figure = Figure(figsize=(5.6, 6))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-0.05, 4.05), ylim=(-0.1, 4))
    axes.axis("off")
    for name, (x, y, width, colour) in BOXES.items():
        files = [path for path in (SOURCE / name).rglob("*.py") if path.name != "__init__.py"]
        parts = sorted({path.relative_to(SOURCE / name).parts[0].removesuffix(".py") for path in files})
        text = textwrap.fill("  ".join(parts), int(width * 17.5), break_on_hyphens=False)
        axes.add_patch(
            matplotlib.patches.Rectangle((x, y), width, 0.9, facecolor=colour, edgecolor="#555555")
        )
        axes.text(x + 0.06, y + 0.8, name, fontsize=13, weight="bold", va="top")
        axes.text(x + 0.06, y + 0.6, text, fontsize=10, va="top")
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw()
