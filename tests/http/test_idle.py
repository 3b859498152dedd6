"""Idle is free: with 100 idle connections the server takes under half a percent of a core, and none of them is forgotten."""

import resource
import time

import attnd_client
from raw_http import connect, long_context_model, post, request, wait_until


class Idle(attnd_client.ServerTest):
    flags = ["--ping-interval", "1"]

    def test_cpu_with_idle_connections(self):
        connections = [connect(self.server) for _ in range(100)]
        for c in connections:
            c.sendall(request("GET", "/livez"))
        for c in connections:
            self.assertTrue(c.recv(1000).startswith(b"HTTP/1.1 200"))
        time.sleep(1)
        before, began = self.server.cpu_seconds(), time.monotonic()
        time.sleep(10)
        share = (self.server.cpu_seconds() - before) / (time.monotonic() - began)
        self.assertLess(share, 0.005)
        for c in connections:  # all still there
            c.sendall(request("GET", "/livez"))
            self.assertTrue(c.recv(1000).startswith(b"HTTP/1.1 200"))
            c.close()
        wait_until(lambda: self.metrics()["attnd_http_connections"] <= 1, "connections close")

    def test_descriptors_do_not_grow(self):
        for _ in range(20):
            self.assertEqual(200, self.get("/livez").status)
        wait_until(lambda: self.metrics()["attnd_http_connections"] <= 1, "connections close")
        before = self.server.fds()
        for _ in range(2000):
            self.assertEqual(200, self.get("/livez").status)
        wait_until(lambda: self.server.fds() <= before + 1, "descriptors are given back")

    def test_descriptors_run_out(self):
        """Clients beyond the limit on open files wait, nothing spins, and accepting goes on when some leave."""
        pid = self.server.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (self.server.fds() + 20, hard))
        self.addCleanup(resource.prlimit, pid, resource.RLIMIT_NOFILE, (soft, hard))
        connections = [connect(self.server) for _ in range(60)]
        time.sleep(0.5)
        before, began = self.server.cpu_seconds(), time.monotonic()
        time.sleep(2)
        self.assertLess((self.server.cpu_seconds() - before) / (time.monotonic() - began), 0.05)
        for c in connections[:50]:
            c.close()
        connections[59].sendall(request("GET", "/livez"))
        self.assertTrue(connections[59].recv(1000).startswith(b"HTTP/1.1 200"))
        for c in connections[50:]:
            c.close()


class Waiting(attnd_client.ServerTest):
    """Streams that have nothing to say cost nothing either: one whose client does not read, and others that wait behind it."""

    model = long_context_model()
    flags = ["--max-sequences", "1", "--ping-interval", "1", "--stall-timeout", "600", "--kv-bytes", "128m"]

    def test_cpu_with_waiting_streams(self):
        fields = {"inputs": "a", "parameters": {"max_new_tokens": 8000, "ignore_eos": True, "top_n_tokens": 5}}
        streams = [connect(self.server, receive_buffer=4096) for _ in range(20)]
        for s in streams:
            s.sendall(post("/generate_stream", fields))
        for s in streams:  # the ones that wait begin with a ping
            self.assertTrue(s.recv(20).startswith(b"HTTP/1.1 200"))
        tokens = None
        while tokens != self.metrics()["attnd_generation_tokens_total"]:
            tokens = self.metrics()["attnd_generation_tokens_total"]
            time.sleep(1)
        before, began = self.server.cpu_seconds(), time.monotonic()
        time.sleep(5)
        self.assertLess((self.server.cpu_seconds() - before) / (time.monotonic() - began), 0.05)
        self.assertEqual(1, self.metrics()["attnd_requests_running"])
        for s in streams:
            s.close()
        self.assert_idle()


if __name__ == "__main__":
    attnd_client.main()
