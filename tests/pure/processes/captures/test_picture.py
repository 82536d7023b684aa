"""Pictures of a terminal show its final content and are self-contained."""

from xml.etree import ElementTree

from sim.processes.captures.picture import picture_of, shown_lines

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(svg: str) -> list[str]:
    words = [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    return [word for each in words if (word := each.replace("\xa0", " ").strip())]


def test_an_overwritten_line_shows_its_last_version() -> None:
    printed = "begun\r\n\r\x1b[K10 %\r\x1b[K20 %"

    assert shown_lines(printed) == ["begun", "20 %"]
    assert shown_lines(f"{printed}\r\x1b[Kdone\r\n\r\n") == ["begun", "done"]


def test_a_picture_has_title_and_words_and_loads_nothing() -> None:
    svg = picture_of(
        "\x1b[1mnode\x1b[0m  \x1b[32mup\x1b[0m\r\n", title="geolog node", columns=20
    )

    assert texts_of(svg) == ["geolog node", "node", "up"]
    assert svg.count("http") == svg.count("http://www.w3.org/2000/svg") == 1


def test_a_line_that_is_too_long_wraps() -> None:
    svg = picture_of("abcdefghij" * 3, title="long", columns=20)

    assert texts_of(svg) == ["long", "abcdefghijabcdefghij", "abcdefghij"]


def test_the_same_output_gives_the_same_picture() -> None:
    pictures = {picture_of("one\ntwo\n", title="two lines", columns=20) for _ in range(2)}

    assert len(pictures) == 1
