from pathlib import Path

import pytest

import geolog
from geolog.siblings import check_siblings

HOME = Path(geolog.__file__).parent.parent


def test_siblings_next_to_geolog_are_accepted() -> None:
    check_siblings(HOME)


def test_a_sibling_from_elsewhere_is_refused_with_the_file_that_is_found(
    tmp_path: Path,
) -> None:
    with pytest.raises(ImportError, match=r"finds .*regions/__init__\.py\. Rename") as refused:
        check_siblings(tmp_path)

    assert refused.value.name == "regions"
    assert refused.value.path == str(HOME / "regions" / "__init__.py")
