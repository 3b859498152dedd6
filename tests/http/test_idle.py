"""Idle is free: with 100 idle connections the server takes under half a percent of a core, and none of them is forgotten."""

import time

import attnd_client
from raw_http import connect, request, wait_until


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


if __name__ == "__main__":
    attnd_client.main()
