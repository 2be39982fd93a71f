"""A dgemma-server of its own for the scripts beside this file: started on a free port, read from its log, stopped at the end.

Used by openai_client.py, soak.py and bench/over_http.py. Needs nothing but the standard library.
"""

import http.client
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO_MODEL = ROOT / "fixtures" / "demo-model"
PROGRAM = ROOT / "bin" / "dgemma-server"


class Server:
    """`with Server(...) as server:` gives a server that is ready, or one that only listens with `wait=False`."""

    def __init__(self, *arguments, model=DEMO_MODEL, program=PROGRAM, environment=None, wait=True, patience_seconds=120):
        self.log_file = tempfile.NamedTemporaryFile("wb", prefix="dgemma-server.", suffix=".log")
        self.wait = wait
        self.patience_seconds = patience_seconds
        # Settings of the caller's own shell must not change what is measured.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DGEMMA_", "RUST_LOG"))}
        self.process = subprocess.Popen(
            [program, "--model", model, "--addr", "127.0.0.1:0", *arguments],
            stderr=self.log_file,
            env={**kept, **(environment or {})},
        )
        self.address = None

    def __enter__(self):
        try:
            self.address = self._until("to listen", self._listening)
            if self.wait:
                self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url(self):
        return f"http://{self.address[0]}:{self.address[1]}"

    def wait_until_ready(self):
        self._until("to be ready", lambda: self.get("/readyz")[0] == 200)

    def connect(self, timeout_seconds=60):
        return http.client.HTTPConnection(*self.address, timeout=timeout_seconds)

    def get(self, path, headers=None):
        connection = self.connect()
        try:
            connection.request("GET", path, headers=headers or {})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def log(self):
        return Path(self.log_file.name).read_text(errors="replace")

    def resident_bytes(self):
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024

    def stop(self):
        """Ends the server as an operator would; returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def _listening(self):
        found = re.search(r"listening on http://([0-9.]+):(\d+)", self.log())
        return found and (found[1], int(found[2]))

    def _until(self, what, found):
        end = time.monotonic() + self.patience_seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended early:\n{self.log()}")
            value = found()
            if value:
                return value
            time.sleep(0.02)
        raise SystemExit(f"the server took more than {self.patience_seconds} s {what}:\n{self.log()}")
