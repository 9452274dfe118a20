"""Workers that are forked from one that waits: they begin in milliseconds, with everything loaded.

Both ends of one protocol are here. The process that waits has one end of a Unix socket, on which it says that it
compiles first, where that is so, and that it has loaded everything. From then on, each message to it carries four
descriptors: input, output and errors of a worker to fork, and a control socket, on which it answers with the worker's
process id. Once the worker has ended, it is asked there for the exit code, by one byte.

Only Linux has all that this needs; it is safe because the process that waits has no other threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import selectors
import signal
import socket
import subprocess

CAN_FORK = hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")
PATIENCE = 5.0  # seconds that the process that waits may take to answer
STANDARD = 3  # descriptors of input, output and errors, which come before that of the control socket
COMPILES, LOADED = b"c", b"l"  # what the process that waits says
UNKNOWN = 1  # exit code of a worker whose parent ended before it could tell


class ForkedProcess:
    """A worker that was forked from one that waits. It is used like `subprocess.Popen`, as far as it goes.

    Args:
        requests: this end of the waiting process's socket.
        errors: descriptor of the file for what the worker prints.

    Raises:
        OSError: if the process that waits does not answer, or cannot fork.
    """

    def __init__(self, requests: socket.socket, errors: int) -> None:
        self.returncode: int | None = None
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            their_input, our_input = os.pipe()
            self.stdin = ours.enter_context(os.fdopen(our_input, "w", encoding="utf-8"))
            theirs.callback(os.close, their_input)
            our_output, their_output = os.pipe()
            self.stdout = ours.enter_context(os.fdopen(our_output, encoding="utf-8"))
            theirs.callback(os.close, their_output)
            mine, control = socket.socketpair()
            self._control, _ = ours.enter_context(mine), theirs.enter_context(control)
            mine.settimeout(PATIENCE)
            socket.send_fds(requests, [b"f"], [their_input, their_output, errors, control.fileno()])
            theirs.close()  # so that there is an end to read where the process that waits has ended
            self.pid = self._number()
            self._handle = os.pidfd_open(self.pid)
            ours.pop_all()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._code_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once there is one.

        Raises:
            subprocess.TimeoutExpired: if there is none in ``timeout`` seconds.
        """
        code = self._code_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked worker", timeout or 0.0)
        return code

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _code_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            ending = select.poll()
            ending.register(self._handle, select.POLLIN)
            if ending.poll(None if seconds is None else 1000 * seconds):
                self.returncode = self._exit_code()
                os.close(self._handle)
                self._control.close()
        return self.returncode

    def _exit_code(self) -> int:
        try:
            self._control.sendall(b"?")
            return self._number()
        except OSError:
            return UNKNOWN

    def _number(self) -> int:
        """What the process that waits answers."""
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._control.recv(32)
            if not part:
                raise OSError("the process that waits has ended, or cannot fork")
            answer += part
        return int(answer)


def fork_until_asked(requests: socket.socket) -> bool:
    """In the process that waits: fork workers until a line comes in on its own standard input.

    Returns:
        True in a worker that was forked: its input, output and errors are those that were sent. False in the process
        itself, once it has been asked something or its parent is gone.
    """
    gc.collect()
    gc.freeze()  # so that a worker's collector does not write to, and copy, what is shared
    workers: dict[int, int] = {}  # process ids by the descriptors of their control sockets
    with selectors.DefaultSelector() as selector, requests, contextlib.suppress(BrokenPipeError):
        selector.register(requests, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        requests.sendall(LOADED)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return False
                if key.fd in workers:
                    selector.unregister(key.fd)
                    _tell_exit_code(key.fd, workers.pop(key.fd))
                    continue
                _, descriptors, _, _ = socket.recv_fds(requests, 1, STANDARD + 1)
                if len(descriptors) <= STANDARD:
                    return False
                control = descriptors[STANDARD]
                process = _fork(descriptors, list(workers))
                if process == 0:
                    return True
                if process is not None:
                    workers[control] = process
                    selector.register(control, selectors.EVENT_READ)
    return False


def _fork(descriptors: list[int], others: list[int]) -> int | None:
    """Fork a worker: 0 in it, its id in the process that waits, None where the system does not allow it.

    Args:
        descriptors: input, output, errors and control socket of the worker.
        others: control sockets of other workers.
    """
    control = descriptors[STANDARD]
    try:
        process = os.fork()
    except OSError:
        process = None
    if process == 0:
        os.setpgid(0, 0)
        for standard, descriptor in enumerate(descriptors[:STANDARD]):
            os.dup2(descriptor, standard)
        for descriptor in (*descriptors, *others):
            os.close(descriptor)
        return 0
    for descriptor in descriptors[:STANDARD]:
        os.close(descriptor)
    if process is None:
        os.close(control)
    else:
        with contextlib.suppress(OSError):  # as the worker does, whoever of the two comes first
            os.setpgid(process, process)
        os.write(control, b"%d\n" % process)
    return process


def _tell_exit_code(control: int, worker: int) -> None:
    """Say how a worker ended to who asks; who has closed the control socket does not want to know."""
    if os.read(control, 1):
        _, status = os.waitpid(worker, 0)
        with contextlib.suppress(OSError):
            os.write(control, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(control)
