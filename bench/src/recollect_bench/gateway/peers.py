"""Others' gateways beside ours: installed by pip into environments of their own, for one run.

Owns how each is installed and started. `BENCH_PEERS` names a folder that keeps the
environments for the next run. One that cannot be installed is left out, and the result says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recollect_bench.gateway.processes import ServerProcess, free_port

INSTALL_SECONDS: Final = 900
FOLDER_VARIABLE: Final = "BENCH_PEERS"
MODEL: Final = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A gateway of somebody else's."""

    name: str
    """As figures are named after it."""
    environment: str
    package: str
    program: str
    options: str
    """For people: how it runs."""
    arguments: Callable[[int, Path, str], Sequence[str]]
    """Given the port, a folder for its files, and the provider's URL."""
    variables: Callable[[Path, str], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerServer:
    """A peer that is installed and can be started."""

    name: str
    version: str
    how: str
    process: ServerProcess
    headers: Mapping[str, str] = field(default_factory=dict)


def _litellm_arguments(port: int, folder: Path, upstream: str) -> Sequence[str]:
    model = {"model": f"anthropic/{MODEL}", "api_base": upstream, "api_key": "sk-bench"}
    config = folder / "litellm.yaml"  # YAML takes JSON
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
    return ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]


def _litellm_variables(_: Path, __: str) -> Mapping[str, str]:
    return {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }


def _headroom_arguments(*more: str) -> Callable[[int, Path, str], Sequence[str]]:
    def arguments(port: int, _: Path, upstream: str) -> Sequence[str]:
        quiet = ["--no-rate-limit", "--no-cache", "--no-subscription-tracking"]
        return ["proxy", "--port", str(port), "--anthropic-api-url", upstream, *quiet, *more]

    return arguments


def _headroom_variables(folder: Path, upstream: str) -> Mapping[str, str]:
    home = folder / "headroom-home"
    home.mkdir(exist_ok=True)
    return {
        "HOME": str(home),
        "ANTHROPIC_TARGET_API_URL": upstream,
        "HEADROOM_TELEMETRY": "off",
        "HF_HUB_OFFLINE": "1",
    }


PEERS: Final = (
    Peer(
        name="litellm",
        environment="litellm",
        package="litellm[proxy]",
        program="litellm",
        options="its proxy, one model, no database",
        arguments=_litellm_arguments,
        variables=_litellm_variables,
    ),
    Peer(
        name="headroom_passing",
        environment="headroom",
        package="headroom-ai[proxy]",
        program="headroom",
        options="--no-optimize",
        arguments=_headroom_arguments("--no-optimize"),
        variables=_headroom_variables,
    ),
    Peer(
        name="headroom",
        environment="headroom",
        package="headroom-ai[proxy]",
        program="headroom",
        options="as it comes",
        arguments=_headroom_arguments(),
        variables=_headroom_variables,
    ),
)


def installed_peers(
    folder: Path, upstream: str, progress: Callable[[str], None]
) -> tuple[list[PeerServer], list[str]]:
    """The peers that could be installed, and notes on those that could not."""
    kept = Path(os.environ.get(FOLDER_VARIABLE) or folder)
    ready: list[PeerServer] = []
    notes: list[str] = []
    for peer in PEERS:
        progress(f"installing {peer.package}")
        environment = kept / peer.environment
        problem = _installed(environment, peer)
        if problem:
            notes.append(f"{peer.name}: not measured, pip could not install it ({problem})")
            continue
        port = free_port()
        program = str(environment / "bin" / peer.program)
        process = ServerProcess(
            [program, *peer.arguments(port, folder, upstream)],
            port,
            log=folder / f"{peer.name}.log",
            environment={**peer.variables(folder, upstream), "PYTHONPATH": ""},
        )
        ready.append(
            PeerServer(
                name=peer.name,
                version=_version(environment, peer),
                how=peer.options,
                process=process,
            )
        )
    return ready, notes


def _installed(environment: Path, peer: Peer) -> str:
    """Install a peer where it is not; why that failed, empty where it did not."""
    if (environment / "bin" / peer.program).exists():
        return ""
    python = str(environment / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [python, "-m", "pip", "install", "-q", peer.package],
    ):
        try:
            done = subprocess.run(  # noqa: S603 - commands of ours
                command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return type(error).__name__
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no word why"])[-1][:200]
    return ""


def _version(environment: Path, peer: Peer) -> str:
    name = peer.package.partition("[")[0]
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run(  # noqa: S603 - a command of ours
        [str(environment / "bin" / "python"), "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{name} {done.stdout.strip()}"
