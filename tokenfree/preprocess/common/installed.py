"""What Python knows of the installed package; a checkout can also be run without installing it."""

import importlib.metadata


def own_version() -> str:
    """Return the version of tokenfree, or "unknown" if it is not installed."""
    try:
        return importlib.metadata.version("tokenfree")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def own_requirements() -> list[str]:
    """Return the requirements that tokenfree declares; none if it is not installed."""
    try:
        return importlib.metadata.requires("tokenfree") or []
    except importlib.metadata.PackageNotFoundError:
        return []
