"""Bytes as they are on the wire: requests no HTTP library would send, and answers cut up without forgiving anything."""

import atexit
import json
import os
import shutil
import socket
import tempfile
import time

import attnd_client
import gguf_edit

PATIENCE = 45  # seconds until a silent server counts as hung; no test asserts that something is fast


def long_context_model():
    """The tiny model with a context of 8192: room for streams that last until somebody ends them."""
    folder = tempfile.mkdtemp(prefix="attnd-http-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "long.gguf")
    gguf_edit.set_u32(attnd_client.TINY_LLAMA, path, "llama.context_length", 8192)
    return path


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:80]!r}>"


def connect(server, patience=PATIENCE, receive_buffer=None):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(patience)
    s.connect((server.host, server.port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def read_to_end(s):
    """All bytes until the server closes. A reset ends them too: it is how a socket with unread input closes."""
    got = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                return got
            got += part
    except ConnectionResetError:
        return got


def split_answers(data, heads=()):
    """Every answer in the bytes. `heads`: which of them (0, 1, ...) answer a HEAD and have no body."""
    answers = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        assert mark, f"an answer without the end of its head: {data[:200]!r}"
        lines = head.decode("latin-1").split("\r\n")
        assert lines[0].startswith("HTTP/1.1 "), f"not a status line: {lines[0]!r}"
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value.strip()
        status = int(lines[0].split()[1])
        if len(answers) in heads or status == 100:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body, rest = split_chunks(rest)
        elif "content-length" in headers:
            n = int(headers["content-length"])
            assert len(rest) >= n, f"{n - len(rest)} bytes of the body are missing"
            body, rest = rest[:n], rest[n:]
        else:
            body, rest = rest, b""
        answers.append(Answer(status, headers, body))
        data = rest
    return answers


def split_chunks(data):
    body = b""
    while True:
        size, mark, data = data.partition(b"\r\n")
        assert mark, "chunked body without its end"
        n = int(size, 16)
        assert data[n : n + 2] == b"\r\n", "chunk without its end"
        body, data = body + data[:n], data[n + 2 :]
        if n == 0:
            return body, data


def ask(server, data, heads=()):
    """Sends the bytes, reads until the server closes, gives the answers."""
    with connect(server) as s:
        try:
            s.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass
        return split_answers(read_to_end(s), heads)


def request(method="GET", target="/livez", headers=(), body=b"", version="HTTP/1.1", host="localhost"):
    lines = [f"{method} {target} {version}"]
    lines += [f"Host: {host}"] if host is not None else []
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def post(target, fields, headers=()):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return request("POST", target, [("Content-Type", "application/json"), ("Content-Length", len(body)), *headers], body)


def wait_until(condition, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.05)


class RawTest(attnd_client.ServerTest):
    def assert_refused(self, data, *statuses):
        """One answer, JSON, the connection closed, and no route saw anything."""
        before = self.metrics()["attnd_http_requests_total"]
        answers = ask(self.server, data)
        self.assertEqual(1, len(answers), answers)
        self.assertIn(answers[0].status, statuses, answers)
        self.assertEqual("close", answers[0].headers.get("connection"), answers)
        self.assertEqual("application/json", answers[0].headers["content-type"])
        self.assertIn("error", answers[0].json())
        self.assertEqual(before + 1, self.metrics()["attnd_http_requests_total"])
        return answers[0]

    def assert_library_refuses(self, data, *statuses):
        """The library's own page; its form is not ours to choose, but it closes and no route sees anything."""
        before = self.metrics()["attnd_http_requests_total"]
        with connect(self.server) as s:
            try:
                s.sendall(data)
            except (ConnectionResetError, BrokenPipeError):
                pass
            got = read_to_end(s)
        if got or None not in statuses:
            self.assertRegex(got, rb"^HTTP/1\.1 \d{3} ")
            self.assertIn(int(got.split()[1]), statuses, got[:200])
        self.assertEqual(before + 1, self.metrics()["attnd_http_requests_total"])
        return got

    def assert_alive(self):
        self.assertEqual(200, self.get("/livez").status)
