"""A PostgreSQL server of a test's own, in a temporary folder and on a Unix socket in it; it can be killed.

PostgreSQL refuses to run as root. There, its processes run as the user `postgres` or `nobody`, to whom the folder
belongs.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from support.waits import wait_until


class PostgresServer:
    def __init__(self, **settings: str) -> None:
        """`settings` are settings of the server, by name."""
        memory = Path("/dev/shm")
        self._base = Path(tempfile.mkdtemp(prefix="veilcast-postgres-", dir=memory if memory.is_dir() else None))
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = _find_account()
            os.chown(self._base, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._run(_program("initdb"), "-D", self._data, "-U", "relay", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def name(self) -> str:
        """The connection string, as a file of a server has it."""
        return f"host={self._base} user=relay dbname=postgres"

    def start(self) -> None:
        """Start, and return when sessions are accepted. Processes of a killed server may still be ending."""
        wait_until(self._is_up)

    def kill(self) -> None:
        """Kill the main process; all others end when they notice."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()  # "Smart": it would wait for sessions; the next signal ends them.
            self._process.send_signal(2)
            self._process.wait()
        shutil.rmtree(self._base, ignore_errors=True)

    def psql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in a session of its own."""
        import psycopg

        with psycopg.connect(self.name, autocommit=True) as session:
            cursor = session.execute(statement.encode())
            return list(cursor.fetchall()) if cursor.description else []

    @property
    def _data(self) -> str:
        return str(self._base / "data")

    def _is_up(self) -> bool:
        import psycopg

        if self._process is None or self._process.poll() is not None:
            options = {"unix_socket_directories": str(self._base), "listen_addresses": "", **_SMALL, **self._settings}
            words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", self._data, *words], **self._place, stdout=_NULL, stderr=_NULL
            )
        try:
            psycopg.connect(self.name).close()
        except psycopg.Error:
            return False
        return True

    def _run(self, *command: str) -> None:
        subprocess.run(command, **self._place, check=True, stdout=_NULL)

    @property
    def _place(self) -> dict[str, Any]:
        return {"cwd": self._base, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **self._account}


def reason_to_skip() -> str | None:
    """Why no server can run here; None if one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "the PostgreSQL driver is not installed (pip install psycopg[binary])"
    if not (_find_program("postgres") and _find_program("initdb")):
        return "PostgreSQL is not on this machine (Debian: postgresql)"
    if os.geteuid() == 0 and _find_account() is None:
        return "PostgreSQL does not run as root, and there is neither a user postgres nor nobody"
    return None


def _find_account() -> Any:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _find_program(name: str) -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


def _program(name: str) -> str:
    program = _find_program(name)
    assert program is not None
    return program


_NULL = subprocess.DEVNULL
_SMALL = {"shared_buffers": "16MB", "max_connections": "20"}
