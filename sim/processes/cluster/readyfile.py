"""Files that describe a local cluster to other processes: the ready file and the settings."""

import json
import os
from pathlib import Path

from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ClusterPlan
from sim.processes.cluster.server import Server


def ready_document(cluster: LocalCluster) -> dict[str, object]:
    """All processes by region, with everything needed to kill and restart them."""
    plan = cluster.plan
    return {
        "cluster": plan.cluster,
        "zookeeper": plan.zookeeper,
        "config": str(plan.settings_file),
        "console": None,
        "wan": _process(cluster.servers["wan"]) if plan.wan is not None else None,
        "regions": {region: _region(cluster, region) for region in plan.regions},
    }


def settings_text(cluster: LocalCluster) -> str:
    """The content of `geolog.toml`, for use from a second terminal."""
    plan = cluster.plan
    gateway = "" if plan.wan is None else f"gateway = {json.dumps(plan.wan.gateway)}\n"
    return (
        "# Written by geolog demo. Use it from another terminal:\n"
        f"#   geolog --config {plan.settings_file} cluster health\n"
        f"zookeeper = {json.dumps(plan.zookeeper)}\n"
        f"zookeeper_regions = {json.dumps(_zookeeper_regions(plan))}\n"
        f"cluster = {json.dumps(plan.cluster)}\n"
        f"region = {json.dumps(plan.regions[0])}\n"
        f"{gateway}"
        "\n[demo]\n"
        f"data_dir = {json.dumps(str(plan.directory))}\n"
    )


def _zookeeper_regions(plan: ClusterPlan) -> str:
    return ",".join(server.region for server in plan.of_kind("zookeeper"))


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _region(cluster: LocalCluster, region: str) -> dict[str, object]:
    servers = cluster.named(region)
    proxies = [server for server in servers if server.plan.kind == "proxy"]
    storage = [server for server in servers if server.plan.kind == "storage"]
    relays = [server for server in servers if server.plan.kind == "relay"]
    zookeepers = [server for server in servers if server.plan.kind == "zookeeper"]
    return {
        "proxies": [_proxy(server) for server in proxies],
        "storage": [_storage(server) for server in storage],
        "relays": [_relay(server) for server in relays],
        "zookeeper": _process(zookeepers[0]) if zookeepers else None,
    }


def _proxy(server: Server) -> dict[str, object]:
    return {
        "url": f"ws://{server.plan.address}",
        "http": f"http://{server.plan.http}",
        "name": server.plan.name,
    } | _process(server)


def _relay(server: Server) -> dict[str, object]:
    return {"id": server.plan.name, "name": server.plan.name} | _process(server)


def _storage(server: Server) -> dict[str, object]:
    return {
        "id": server.node_id,
        "name": server.plan.name,
        "location": server.plan.location,
        "data_dir": str(server.plan.data_dir),
    } | _process(server)


def _process(server: Server) -> dict[str, object]:
    return {
        "address": server.plan.address,
        "pid": server.pid,
        "argv": list(server.plan.argv),
        "log": str(server.plan.log),
    }
