"""The wheel holds all of geolog and nothing else, and works next to files of the same names."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["geolog", "regions", "relay", "sim", "topology"]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without environment variables that lead to other packages."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def run_well(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run_well(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=ROOT
    )
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin directory of an environment with geolog from the wheel, all else as here.

    Its dependencies are those of the environment that runs the tests: a line in a .pth file
    gives the directory without reading the .pth files in it, so that the checkout itself is not
    found.
    """
    home = tmp_path_factory.mktemp("installed")
    run_well(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run_well(
        *(
            sys.executable,
            "-m",
            "pip",
            "--python",
            home / "bin" / "python",
            "install",
            "--quiet",
        ),
        *("--no-deps", "--no-index", "--ignore-installed", "--no-compile", wheel),
        cwd=home,
    )
    return home / "bin"


@pytest.fixture
def beside_decoys(tmp_path: Path) -> Path:
    """Make a user's directory with files that have the names of geolog's packages."""
    for name in ("topology", "sim"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger was imported')\n")
    return tmp_path


def test_the_wheel_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}

    assert sorted(top for top in tops if not top.endswith(".dist-info")) == PACKAGES


def test_the_packages_come_from_where_the_wheel_was_installed(
    installed: Path, beside_decoys: Path
) -> None:
    program = f"import {', '.join(PACKAGES)}; print(topology.__file__)"

    printed = run_well(installed / "python", "-P", "-c", program, cwd=beside_decoys)

    assert Path(printed.strip()).is_relative_to(installed.parent)


def test_the_command_works_next_to_files_with_the_same_names(
    installed: Path, beside_decoys: Path
) -> None:
    as_script = run_well(installed / "geolog", "--version", cwd=beside_decoys)
    as_module = run_well(
        installed / "python", "-P", "-m", "geolog", "--version", cwd=beside_decoys
    )

    assert as_script.startswith("geolog")
    assert as_module == as_script


def test_a_file_that_shadows_a_package_is_named(installed: Path, beside_decoys: Path) -> None:
    done = run(installed / "python", "-c", "import geolog", cwd=beside_decoys)

    assert done.returncode == 1
    assert "a stranger was imported" not in done.stderr
    assert str(beside_decoys / "sim.py") in done.stderr
    assert "python -P -m geolog" in done.stderr
