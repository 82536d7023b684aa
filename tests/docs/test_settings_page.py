"""docs/SETTINGS.md agrees with the settings classes."""

from pathlib import Path

from geolog.cli.settings.settings_page import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "SETTINGS.md"


def test_the_settings_page_matches_the_settings_classes() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), (
        "regenerate it: python -P -m geolog.cli.settings.settings_page > docs/SETTINGS.md"
    )
