"""Harness of the HTTP tests: starts the server binary, speaks plain HTTP to it, reads event streams from a raw socket.

    class T(attnd_client.ServerTest):
        flags = ["--max-sequences", "8"]
        def test_it(self):
            r = self.post("/v1/completions", {"prompt": "a", "max_tokens": 4})
            self.assertEqual(200, r.status, r.text)
            with self.stream("/v1/completions", {"prompt": "a", "stream": True}) as s:
                for event in s: event.json(), event.data, event.comments
    if __name__ == "__main__":
        attnd_client.main()

The binary comes from ATTND_BIN. A server of its own: `with Server(TINY_LLAMA, "--max-waiting", "1") as s: s.get("/info")`.
Only the standard library. A test that fails prints the end of the server's log; a server that ends with a status other
than 0, or with a sanitizer's report, fails the class.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "golden", "data")
TINY_LLAMA = os.path.join(DATA, "tiny-llama-q8_0.gguf")
TINY_GPT2 = os.path.join(DATA, "tiny-gpt2-f16.gguf")
SANITIZER = re.compile(r"(ERROR: (Address|Leak|Thread|Undefined\w*)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ).*")
TIMEOUT = 60  # of one answer, in seconds: only a hang reaches it, also under a sanitizer on a busy machine
LOG_TAIL = 8000


def binary():
    path = os.environ.get("ATTND_BIN") or os.path.join(ROOT, "build", "release", "attnd")
    if not os.access(path, os.X_OK):
        sys.exit(f"no server binary at {path}: build it or set ATTND_BIN")
    return path


def real_model():
    """Path of Gemma 3 270M. Absent: a failure under CI=true, else the whole program is skipped (exit 77)."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.environ.get("ATTND_MODELS") or os.path.join(cache, "attnd", "models")
    path = os.path.join(folder, "gemma-3-270m-q4_k_m.gguf")
    if os.path.exists(path):
        return path
    print(f"{path} is missing: get it with ./dev model gemma3-270m", file=sys.stderr)
    sys.exit(1 if os.environ.get("CI") == "true" else 77)


class Response:
    """status, headers (lower-case names; repeated ones joined by ", "), body (bytes)."""

    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {}
        for name, value in headers:
            name = name.lower()
            self.headers[name] = self.headers[name] + ", " + value if name in self.headers else value

    @property
    def text(self):
        return self.body.decode("utf-8")

    def json(self):
        return json.loads(self.text, parse_constant=lambda word: (_ for _ in ()).throw(ValueError(f"{word} is not JSON")))


class Event:
    """One server-sent event: event, id, data (None for a block of comments alone), comments seen since the one before."""

    def __init__(self, event, ident, data, comments, raw):
        self.event, self.id, self.data, self.comments, self.raw = event, ident, data, comments, raw

    def json(self):
        return json.loads(self.data)


class Stream:
    """A streamed answer read from a socket of its own. Iterating gives every event with data, in order; `clean` then says
    whether the answer was marked as complete. close() in the middle is how a client leaves."""

    def __init__(self, host, port, method, path, body, headers, timeout=TIMEOUT):
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.clean, self.comments = b"", False, []
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", f"Content-Length: {len(body)}"]
        lines += [f"{k}: {v}" for k, v in headers.items()]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        self.status = int(head[0].split()[1])
        pairs = [line.split(":", 1) for line in head[1:] if line]
        response = Response(self.status, [(k, v.strip()) for k, v in pairs], b"")
        self.headers = response.headers
        self.chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self.left = int(self.headers["content-length"]) if "content-length" in self.headers else None

    def _fill(self):
        got = self.sock.recv(65536)
        self.buffer += got
        return bool(got)

    def _until(self, mark):
        while mark not in self.buffer:
            if not self._fill():
                raise ConnectionError(f"connection ended before {mark!r}; had {self.buffer[:200]!r}")
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def _exactly(self, n):
        while len(self.buffer) < n:
            if not self._fill():
                raise ConnectionError(f"connection ended {n - len(self.buffer)} bytes early")
        part, self.buffer = self.buffer[:n], self.buffer[n:]
        return part

    def chunks(self):
        """The body as the server wrote it, chunk by chunk."""
        if self.chunked:
            while True:
                size = int(self._until(b"\r\n").split(b";")[0], 16)
                if size == 0:
                    self._until(b"\r\n")
                    self.clean = True
                    return
                data = self._exactly(size)
                if self._exactly(2) != b"\r\n":
                    raise ConnectionError("chunk without its end")
                yield data
        elif self.left is not None:
            data = self._exactly(self.left)
            self.clean = True
            yield data
        else:
            while self.buffer or self._fill():
                data, self.buffer = self.buffer, b""
                yield data
            self.clean = True

    def read(self):
        return b"".join(self.chunks())

    def json(self):
        """The whole body as JSON: for an answer that came as an error instead of a stream."""
        return json.loads(self.read())

    def __iter__(self):
        text = b""
        for chunk in self.chunks():
            text += chunk
            while b"\n\n" in text:
                block, text = text.split(b"\n\n", 1)
                event = self._event(block)
                if event.data is not None:
                    yield event
                else:
                    self.comments += event.comments
        if text.strip():
            raise ConnectionError(f"stream ended inside an event: {text[:200]!r}")

    @staticmethod
    def _event(block):
        name, ident, data, comments = None, None, None, []
        for line in block.decode("utf-8").split("\n"):
            if line.startswith(":"):
                comments.append(line[1:].strip())
                continue
            field, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field == "data":
                data = value if data is None else data + "\n" + value
            elif field == "event":
                name = value
            elif field == "id":
                ident = value
        return Event(name, ident, data, comments, block)

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Server:
    """A running server. Keyword `env` adds environment variables, `wait=False` returns as soon as it listens."""

    def __init__(self, model=TINY_LLAMA, *flags, env=None, wait=True):
        self.args = [binary()]
        if model is not None:
            self.args += ["--model", model]
        if "--port" not in flags:
            self.args += ["--port", "0"]
        if "--host" not in flags:
            self.args += ["--host", "127.0.0.1"]
        if not {"--kv-bytes", "--config"} & set(flags) and model is not None and self._is_tiny(model):
            self.args += ["--kv-bytes", "32m"]  # 256 full contexts; the default would touch 1 GiB at every start
        self.args += flags
        self.env = {**os.environ, **(env or {})}
        self.wait = wait
        self.process, self.lines, self.reader = None, [], None
        self.listening = threading.Event()
        self.host = self.port = None

    @staticmethod
    def _is_tiny(model):
        return os.path.exists(model) and os.path.getsize(model) < 1 << 20

    def start(self):
        self.process = subprocess.Popen(
            self.args, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        if not self.listening.wait(TIMEOUT) or self.port is None:
            log = self.log()
            self.stop()
            raise RuntimeError(f"the server did not listen: {' '.join(self.args)}\n{log}")
        if self.wait:
            self.wait_ready()
        return self

    def _read_log(self):
        for line in self.process.stderr:
            line = line.decode("utf-8", "replace")
            self.lines.append(line)
            match = re.search(r"listening on http://(\[[^]]+\]|[^:\s]+):(\d+)", line)
            if match and self.port is None:
                self.host, self.port = match.group(1).strip("[]"), int(match.group(2))
                self.listening.set()
        self.listening.set()

    def log(self):
        return "".join(self.lines)

    def wait_ready(self, timeout=TIMEOUT):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}\n{self.log()}")
            try:
                if self.get("/readyz").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the server did not become ready in {timeout} s\n{self.log()}")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def stop(self, timeout=TIMEOUT):
        """SIGTERM, then SIGKILL. Returns the exit status (negative: a signal)."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.reader.join(5)
        self.process.stderr.close()
        return code

    def faults(self):
        """Lines in which a sanitizer reports something."""
        return [line for line in self.lines if SANITIZER.search(line)]

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        code = self.stop()
        if kind is None and (code != 0 or self.faults()):
            raise RuntimeError(f"the server ended with {code}\n{self.log()[-LOG_TAIL:]}")

    # ---- requests ----

    def connection(self, timeout=TIMEOUT):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, connection=None):
        """body: bytes as they are, anything else as JSON. A connection given is kept alive."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None and not any(k.lower() == "content-type" for k in headers):
            headers["Content-Type"] = "application/json"
        conn = connection or self.connection()
        try:
            conn.request(method, path, body, headers)
            answer = conn.getresponse()
            return Response(answer.status, answer.getheaders(), answer.read())
        finally:
            if connection is None:
                conn.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", path, **more)

    def stream(self, path, body, headers=None, method="POST", timeout=TIMEOUT):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return Stream(self.host, self.port, method, path, body, {"Content-Type": "application/json", **(headers or {})}, timeout)

    def metrics(self):
        """{'name{labels}': value} of one scrape, labels as written."""
        out = {}
        for line in self.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    # ---- what the process uses ----

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def wait_fds(self, most, timeout=TIMEOUT):
        """Waits until no more than `most` descriptors are open: a closed connection is noticed a moment later."""
        deadline = time.monotonic() + timeout
        while self.fds() > most:
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.fds()} descriptors are open, {most} were before")
            time.sleep(0.02)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ServerTest(unittest.TestCase):
    """One server a class: `model`, `flags` and `env` say which. Its requests are methods here too."""

    model = TINY_LLAMA
    flags = []
    env = {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.model, *cls.flags, env=cls.env).start()
        for name in ("get", "post", "delete", "request", "stream", "metrics"):
            setattr(cls, name, getattr(cls.server, name))

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0 or cls.server.faults():
            raise AssertionError(f"the server ended with {code}\n{cls.server.log()[-LOG_TAIL:]}")

    def run(self, result=None):
        before = len(result.failures) + len(result.errors) if result else 0
        super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            tail = self.server.log()[-LOG_TAIL:]
            print(f"---- server log up to the failure of {self.id()} ----\n{tail}---- end ----", file=sys.stderr)

    def assert_error(self, response, status, kind=None, param=None):
        """An OpenAI error body: {"error":{"message","type","param","code"}}. Returns the inner object."""
        self.assertEqual(status, response.status, response.text)
        self.assertTrue(response.headers["content-type"].startswith("application/json"), response.headers)
        self.assertEqual(["error"], list(response.json()))
        error = response.json()["error"]
        self.assertEqual({"message", "type", "param", "code"}, set(error))
        self.assertTrue(error["message"])
        if kind is not None:
            self.assertEqual(kind, error["type"])
        if param is not None:
            self.assertEqual(param, error["param"])
        return error

    def assert_idle(self, timeout=TIMEOUT):
        """Waits until nothing runs, waits or holds KV pages beyond what sessions keep."""
        deadline = time.monotonic() + timeout
        while True:
            m = self.metrics()
            busy = m["attnd_requests_running"] or m["attnd_requests_waiting"] or m["attnd_parsing_bytes"]
            if not busy and m["attnd_kv_pages_free"] + m["attnd_kv_pages_kept"] == m["attnd_kv_pages"]:
                return m
            if time.monotonic() > deadline:
                self.fail(f"not idle: { {k: v for k, v in m.items() if 'kv_pages' in k or 'requests' in k or 'parsing' in k} }")
            time.sleep(0.02)


def main():
    unittest.main(verbosity=2)
