from tests.docs.console_blocks import Command, commands_of

PAGE = """
```console
$ not run, no place was named yet
```
<!-- run: scratch -->
```console
$ printf 'a\\nb\\n'
a
b
$ quiet
$ fails  # exit 3
```
```text
$ not a console
```
<!-- run: nothing -->
```console
$ not run any more
```
<!-- run: demo -->
```console
$ one \\
  two
$ cat <<END
$ three
END
three
```
```python
print(1)
```
"""
PROGRAM = "python -P - <<'END_OF_THE_EXAMPLE'\nprint(1)\nEND_OF_THE_EXAMPLE"


def test_commands_come_with_their_place_output_and_exit_code() -> None:
    assert list(commands_of(PAGE)) == [
        Command(7, "scratch", "printf 'a\\nb\\n'", printed=("a", "b")),
        Command(10, "scratch", "quiet"),
        Command(11, "scratch", "fails", exit_code=3),
        Command(22, "demo", "one \\\n  two"),
        Command(24, "demo", "cat <<END\n$ three\nEND", printed=("three",)),
        Command(30, "demo", PROGRAM),
    ]


def printing(*lines: str) -> Command:
    return Command(1, "scratch", "it", printed=lines)


def test_output_is_compared_line_by_line() -> None:
    assert printing("a", "b").agrees_with("a\nb\n")
    assert not printing("a", "b").agrees_with("a\n")
    assert not printing("a").agrees_with("a\nb\n")


def test_dots_stand_for_text_within_a_line() -> None:
    assert printing("took ... s").agrees_with("took 0.3 s\n")
    assert not printing("took ... s").agrees_with("took\n0.3 s\n")


def test_a_line_of_dots_stands_for_any_lines() -> None:
    assert printing("first", "...", "last").agrees_with("first\nx\ny\nlast\n")
    assert printing("first", "...", "last").agrees_with("first\nlast\n")
    assert not printing("first", "...", "last").agrees_with("first\nx\n")


def test_a_command_without_printed_lines_may_print_anything() -> None:
    assert printing().agrees_with("whatever\n")
