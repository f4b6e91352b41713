"""`permille up`: everything starts, stays, drains, and begins again where it left off."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from .conftest import Mesh, await_true, permille_alone, running, runs

SERVICES = {"allocator", "controller", "decoder", "coverage"}


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and runs(process.pid)]


def everything_below(mesh: Mesh) -> list[psutil.Process]:
    assert mesh.up is not None
    return psutil.Process(mesh.up.pid).children(recursive=True)


def test_ready_means_that_every_service_is_found_and_healthy(mesh: Mesh) -> None:
    services = mesh.json("doctor")["mesh"]["services"]
    assert {service["service"] for service in services} == SERVICES
    assert all(service["healthy"] for service in services)
    assert set(mesh.processes()) == {*SERVICES, "etcd"}


def test_a_second_one_on_the_same_folder_is_refused_naming_the_first(mesh: Mesh) -> None:
    assert mesh.up is not None
    refused = mesh.run("up", code=4)
    assert f"pid {mesh.up.pid}" in refused.stderr
    assert mesh.json("doctor")["mesh"]["up_pid"] == mesh.up.pid


def test_each_process_that_dies_comes_back_and_the_mesh_works_again(own_mesh: Mesh) -> None:
    own_mesh.start()
    before = {name: process.pid for name, process in own_mesh.processes().items()}
    addresses = {service["address"] for service in own_mesh.json("doctor")["mesh"]["services"]}
    for name in (*SERVICES, "etcd"):
        os.kill(before[name], signal.SIGKILL)

    def well() -> bool:
        now = own_mesh.processes()
        return set(now) == set(before) and all(now[name].pid != pid for name, pid in before.items())

    await_true(well, 60, "new processes in the place of the killed")

    def healthy() -> bool:
        found = own_mesh.json("doctor")["mesh"]["services"]
        # The killed ones are still listed until their leases run out.
        well = [service for service in found if service["healthy"]]
        # Where they were: who is no part of the mesh knows the addresses alone.
        return {service["service"] for service in well} == SERVICES and {one["address"] for one in well} == addresses

    await_true(healthy, 60, "all services to be healthy again")
    assert own_mesh.run("query", "SELECT count(*) FROM sessions").returncode == 0
    for name in before:
        assert f"{name:<11} ended     killed by SIGKILL" in own_mesh.log
    serving = [f"{name:<11} serving   pid {process.pid} " for name, process in own_mesh.processes().items()]
    await_true(lambda: sum(line in own_mesh.log for line in serving) == len(SERVICES), 60, f"{serving} in the log")
    assert own_mesh.stop() == 0


def test_it_goes_on_where_it_left_off_and_leaves_no_process(own_mesh: Mesh, busy_program: Path) -> None:
    own_mesh.start()
    with running(own_mesh, busy_program) as program:
        name = own_mesh.json("trace", "--pid", str(program.pid), "--for", "20ms")["sessions"][0]
    left = everything_below(own_mesh)
    assert own_mesh.stop() == 0
    assert alive(left) == []
    assert own_mesh.log.splitlines()[-1].startswith("stopped")
    own_mesh.start()
    assert [one["name"] for one in own_mesh.json("sessions")["sessions"]] == [name]
    assert own_mesh.json("report", name)["session"]["name"] == name


def test_a_killed_supervisor_leaves_no_orphan(own_mesh: Mesh) -> None:
    own_mesh.start()
    assert own_mesh.up is not None
    left = everything_below(own_mesh)
    assert len(left) >= 5
    own_mesh.up.kill()
    own_mesh.up.wait()
    await_true(lambda: not alive(left), 60, f"the end of {left}")
    # And nothing stands in the way of the next.
    own_mesh.start()


@pytest.mark.slow
def test_a_second_signal_kills(own_mesh: Mesh) -> None:
    own_mesh.start()
    assert own_mesh.up is not None
    left = everything_below(own_mesh)
    for process in own_mesh.processes().values():
        # Stopped, it cannot drain.
        process.suspend()
    own_mesh.up.send_signal(signal.SIGTERM)
    await_true(lambda: "draining" in own_mesh.log, 60, "the drain")
    own_mesh.up.send_signal(signal.SIGTERM)
    own_mesh.up.wait(60)
    await_true(lambda: not alive(left), 60, f"the end of {left}")


def test_whom_a_lost_terminal_is_nothing_to_goes_on(own_mesh: Mesh) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        own_mesh.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert own_mesh.up is not None
    own_mesh.up.send_signal(signal.SIGHUP)
    assert own_mesh.run("query", "SELECT count(*) FROM sessions").returncode == 0
    assert "draining" not in own_mesh.log
    assert own_mesh.stop() == 0


def test_a_wrong_setting_ends_the_start_with_what_the_service_says(tmp_path: Path) -> None:
    config = tmp_path / "permille.toml"
    config.write_text("[controller]\nbudget_bytes = 1\n")
    failed = permille_alone("up", "--state-dir", tmp_path / "state", "--config", config)
    assert failed.returncode == 4
    assert "controller.budget_bytes" in failed.stderr
    assert "logs/controller.log" in failed.stderr
    children = [
        process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(process.info["cmdline"])
    ]
    assert children == []


@pytest.mark.parametrize("option", ["--stat-dir=/x", "--ready-timeout=0"])
def test_wrong_options_are_usage_errors(option: str) -> None:
    assert permille_alone("up", option).returncode == 2


def test_events_for_programs_are_json_lines(own_mesh: Mesh) -> None:
    up = own_mesh.popen("up", "--json", stdout=subprocess.PIPE)
    own_mesh.up = up
    import json

    assert up.stdout is not None
    events = []
    for line in up.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "ready":
            break
    serving = {event["name"] for event in events if event["event"] == "serving"}
    assert serving == SERVICES
    assert own_mesh.stop() == 0
