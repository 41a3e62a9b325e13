"""The processes of a node. Their parent accepts connections and passes them on in turn, because the
kernel shares the connections of one port unevenly."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from subprocess import Popen
from typing import Final

import click

from recollect.core.upkeep.jobs import until
from recollect.hosts.service.telemetry import NODE, write_line
from recollect.system.config import Settings
from recollect.system.loopback import BACKLOG, address_of

# Not measured: a process that fails at its start does not take a whole core.
RESTART_SECONDS: Final = 1.0


class NodeLog:
    """Reports what a node does on standard error, as text or as log lines."""

    def __init__(self, settings: Settings, listening_socket: socket.socket) -> None:
        self._settings, self._socket = settings, listening_socket

    def report(self, event: str, line: str, **fields: object) -> None:
        if self._settings.telemetry.log_format is None:
            click.echo(line, err=True)
        else:
            write_line(NODE, logging.INFO, event, fields)

    def serving(self, port: int | None) -> None:
        """Report that all processes serve. `port` is the metrics port of the first."""
        serve, address = self._settings.serve, address_of(self._socket)
        lines = [f"Recollect serves on {address}: see /openapi.json"]
        if not serve.jobs:
            lines.append("Jobs (facts, retention): run `recollect worker` next to it")
        if port:
            last = f" to {port + serve.processes - 1}" if serve.processes > 1 else ""
            lines.append(f"Metrics: port {port}{last}, /metrics")
        jobs = "node" if serve.jobs else "worker"
        self.report("serving", "\n".join(lines), address=address, metrics_port=port, jobs=jobs)

    def draining(self) -> None:
        seconds = self._settings.serve.drain_seconds
        line = f"Shutting down: /readyz fails, requests are served for {seconds:.3g} s"
        self.report("draining", f"{line}; a second signal stops it at once", seconds=seconds)


class Parent:
    """Runs processes until a signal arrives, and replaces those that end. None outlives its parent,
    because a process ends when its socket to the parent closes."""

    def __init__(self, settings: Settings, listening_socket: socket.socket) -> None:
        self._settings, self._socket = settings, listening_socket
        self._log = NodeLog(settings, listening_socket)
        self._running: dict[socket.socket, Popen[bytes]] = {}
        self._serving: deque[socket.socket] = deque()
        self._started: set[int] = set()
        self._ending = asyncio.Event()
        self._accepting = False
        self._exit_code = 0

    async def run(self) -> int:
        """Return 0, or the exit code of a process that could not start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signal)
        await asyncio.gather(*map(self._keep, range(self._settings.serve.processes)))
        self._log.report("ended", "Ended")
        return self._exit_code

    async def _keep(self, number: int) -> None:
        """Run a process, and start another when it ends."""
        while not self._ending.is_set():
            channel, child_channel = socket.socketpair()
            channel.setblocking(False)
            with channel:
                with child_channel:
                    try:
                        process = self._start(number, child_channel.fileno())
                    except OSError as error:  # the machine has too many processes
                        self._log.report("restarting", f"No process: {error}", error=str(error))
                        await until(self._ending, RESTART_SECONDS)
                        continue
                self._running[channel] = process
                with suppress(ConnectionError):
                    while await asyncio.get_running_loop().sock_recv(channel, 1):
                        self._serving.append(channel)
                        self._listen_if_all_serve(number)
                        self._accept()
                code = await asyncio.to_thread(process.wait)
                del self._running[channel]
                with suppress(ValueError):  # it did not start
                    self._serving.remove(channel)
                self._accept()
            if not self._ending.is_set() and len(self._started) < self._settings.serve.processes:
                self._exit_code = code or 1  # another start would fail too
                self._ending.set()
                for running_process in self._running.values():
                    running_process.kill()
            elif not self._ending.is_set():
                line = f"Process {process.pid} ended ({code}): starting another"
                self._log.report("restarting", line, process=process.pid, code=code)
                await until(self._ending, RESTART_SECONDS)

    def _start(self, number: int, channel: int) -> Popen[bytes]:
        url, port = self._settings.store.url, self._settings.telemetry.metrics_port
        changes = {"STORE__URL": url, "TELEMETRY__METRICS_PORT": port and port + number}
        env = {f"RECOLLECT_{name}": str(value) for name, value in changes.items() if value}
        return Popen(  # noqa: S603 - this program
            [sys.executable, "-P", "-m", "recollect", "serve", "--channel", str(channel)],
            env=os.environ | env | {"RECOLLECT_SERVE__PROCESSES": "1"},
            pass_fds=[channel],
            process_group=0,  # a terminal signals the parent only
        )

    def _listen_if_all_serve(self, number: int) -> None:
        started = len(self._started)
        self._started.add(number)
        is_last = started < len(self._started) == self._settings.serve.processes
        if is_last and not self._ending.is_set():
            self._socket.setblocking(False)
            self._socket.listen(BACKLOG)
            self._accepting = True
            self._log.serving(self._settings.telemetry.metrics_port)

    def _accept(self) -> None:
        """Accept connections while a process serves. Otherwise they wait in the kernel."""
        loop = asyncio.get_running_loop()
        if self._accepting and self._serving:
            loop.add_reader(self._socket, self._pass_on)
        elif self._accepting:
            loop.remove_reader(self._socket)

    def _refuse(self) -> None:
        """Close the port, so that a load balancer tries another node."""
        if self._accepting:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._accepting = False
        self._socket.close()

    def _pass_on(self) -> None:
        with suppress(OSError), self._socket.accept()[0] as connection:
            for _ in range(len(self._serving)):
                self._serving.rotate()
                with suppress(OSError):  # this process is ending or stuck
                    socket.send_fds(self._serving[0], [b"c"], [connection.fileno()])
                    return

    def _signal(self) -> None:
        if self._ending.is_set():
            self._refuse()
        else:
            self._ending.set()
            self._log.draining()
            drain_seconds = self._settings.serve.drain_seconds
            asyncio.get_running_loop().call_later(drain_seconds, self._refuse)
        for channel, process in self._running.items():
            if channel not in self._serving:  # it has not served yet, so nothing is lost
                process.kill()
            with suppress(OSError):
                channel.send(b"s")
