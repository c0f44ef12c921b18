"""A small file system behind WebHDFS, Hadoop's protocol over HTTP: on loopback, in memory, in this process.

It decides between writers as a name node does: a file has its name from the first request of its creation on, and is
empty until all bytes have come. It refuses to rename, to append and to overwrite, as if it could not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class WebHdfs:
    """The files, by path; a path ends with no slash."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        """The operation and the path of each request."""
        self.watch: Callable[[str, str], None] = lambda operation, path: None
        """Called before each operation, with its path. It may wait."""
        self.lock = threading.Lock()
        self.uri = ""

    def below(self, path: str) -> dict[str, bytes]:
        """All files below a directory, by what follows its path."""
        with self.lock:
            return {name[len(path) + 1 :]: data for name, data in self.files.items() if name.startswith(f"{path}/")}

    def status(self, path: str) -> dict[str, Any] | None:
        """The status of a file or directory. A directory is where files are; the root is always one."""
        if path in self.files:
            return _status("FILE", len(self.files[path]))
        known = path == "" or any(name.startswith(f"{path}/") for name in self.files)
        return _status("DIRECTORY", 0) if known else None

    def children(self, path: str) -> list[dict[str, Any]]:
        if path in self.files:
            return [{"pathSuffix": "", **_status("FILE", len(self.files[path]))}]
        names = sorted({name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(f"{path}/")})
        return [{"pathSuffix": name, **(self.status(f"{path}/{name}") or {})} for name in names]


@contextmanager
def webhdfs_server() -> Iterator[WebHdfs]:
    store = WebHdfs()
    handler = type("Handler", (_Handler,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        store.uri = f"webhdfs://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: WebHdfs

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path).removeprefix("/webhdfs/v1").rstrip("/")
        asked = {name.lower(): values[0] for name, values in parse_qs(parts.query).items()}
        operation = asked["op"].upper()
        store = self.store
        try:
            body = self._body()
        except ValueError:
            # Its sender has died.
            self.close_connection = True
            return
        store.requests.append(f"{operation} {path}")
        store.watch(operation, path)
        with store.lock:
            known = store.status(path)
            if operation == "CREATE" and asked.get("step") == "data":
                store.files[path] = body
                self._send(201)
            elif operation == "CREATE":
                if known is not None or asked.get("overwrite") == "true":
                    self._refuse(403, "org.apache.hadoop.fs.FileAlreadyExistsException", f"{path} exists")
                    return
                store.files[path] = b""
                self._redirect("step=data")
            elif operation == "DELETE":
                self._send(200, {"boolean": store.files.pop(path, None) is not None})
            elif operation == "GETHOMEDIRECTORY":
                self._send(200, {"Path": "/user/somebody"})
            elif operation == "MKDIRS":
                self._send(200, {"boolean": True})
            elif known is None:
                self._refuse(404, "java.io.FileNotFoundException", f"File does not exist: {path}")
            elif operation == "GETFILESTATUS":
                self._send(200, {"FileStatus": {"pathSuffix": "", **known}})
            elif operation == "LISTSTATUS":
                self._send(200, {"FileStatuses": {"FileStatus": store.children(path)}})
            elif operation == "GETFILEBLOCKLOCATIONS":
                self._send(200, {"BlockLocations": {"BlockLocation": []}})
            elif operation == "OPEN" and asked.get("step") == "data":
                start = int(asked.get("offset", 0))
                end = start + int(asked["length"]) if "length" in asked else None
                self._send(200, store.files[path][start:end])
            elif operation == "OPEN":
                self._redirect("step=data")
            elif operation == "CHECKACCESS":
                if path.startswith("/locked"):
                    self._refuse(403, "org.apache.hadoop.security.AccessControlException", "Permission denied: user=x")
                else:
                    self._send(200)
            else:
                self._refuse(403, "java.lang.UnsupportedOperationException", f"{operation} is not possible here")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _redirect(self, more: str) -> None:
        self.send_response(307)
        self.send_header("Location", f"http://{self.headers['Host']}{self.path}&{more}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _refuse(self, code: int, kind: str, message: str) -> None:
        name = kind.rpartition(".")[2]
        self._send(code, {"RemoteException": {"exception": name, "javaClassName": kind, "message": message}})

    def _send(self, code: int, content: dict[str, Any] | bytes = b"") -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        # Without Content-Type: Hadoop's client in Spark's jars lacks a class that it needs to read one.
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _status(kind: str, length: int) -> dict[str, Any]:
    return {
        "type": kind,
        "length": length,
        "owner": "somebody",
        "group": "all",
        "permission": "777",
        "accessTime": 0,
        "modificationTime": 0,
        "blockSize": 1 << 27,
        "replication": 1,
    }
