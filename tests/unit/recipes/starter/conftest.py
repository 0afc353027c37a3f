"""Loads the recipe the way agl does: as a package, by its path."""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[4] / "recipes" / "starter"

if "starter_recipe" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "starter_recipe", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["starter_recipe"] = package
    spec.loader.exec_module(package)
