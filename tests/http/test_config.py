"""The program as started by hand: wrong options end it with one line that names the key and what is allowed, before anything
else happens. (Types, ranges and precedence of every option: tests/unit/http/test_config.c.)"""

import json
import os
import socket
import subprocess
import tempfile
import unittest

import attnd_client


def run(*args, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATTND_")}
    return subprocess.run([attnd_client.binary(), *args], env={**clean, **(env or {})}, capture_output=True, text=True, timeout=60)


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return path

    def assert_refused(self, done, *words, code=2):
        self.assertEqual(code, done.returncode, done.stderr)
        self.assertEqual("", done.stdout)
        lines = done.stderr.splitlines()
        self.assertEqual(1, len(lines), done.stderr)
        self.assertTrue(lines[0].startswith("attnd: "), lines)
        for word in words:
            self.assertIn(word, lines[0])

    def options(self):
        return json.loads(run("--print-config", "--model", "m", "--model-id", "i", "--api-key-file", "f").stdout)

    def test_every_option_from_every_source(self):
        model = attnd_client.TINY_LLAMA
        options = self.options()
        self.assertGreater(len(options), 20)
        for name, value in options.items():
            variable = "ATTND_" + name.upper().replace("-", "_")
            if isinstance(value, bool):
                bad, allowed, file_bad = "perhaps", "true or false", 1
            elif isinstance(value, int):
                bad, allowed, file_bad = "99999999999", "a whole number from ", -1
            elif name in ("kv-bytes", "max-body"):
                bad, allowed, file_bad = "1x", "bytes, with suffix k, m or g", "x"
            elif name in ("backend", "kv-type", "log-level"):
                bad, allowed, file_bad = "none", "one of ", 1
            elif isinstance(value, list):
                bad, allowed, file_bad = None, "array of names", "x"
            else:
                bad, allowed, file_bad = "", "text", 1
            with self.subTest(option=name):
                if bad is not None:
                    self.assert_refused(run("--model", model, f"--{name}={bad}", "--check-config"), f"{name}: ", allowed, "command line")
                    self.assert_refused(run("--check-config", env={variable: bad}), f"{name}: ", allowed, variable)
                config = self.file("c.json", json.dumps({name: file_bad}))
                self.assert_refused(run("--config", config, "--check-config"), f"{name}: ", allowed, "configuration file")

    def test_unknown_names(self):
        self.assert_refused(run("--frobnicate"), "frobnicate: unknown option", "--help")
        self.assert_refused(run("file.gguf"), "file.gguf")
        self.assert_refused(run("--config", self.file("c", '{"models": "x"}')), "models: unknown key")
        self.assertEqual(0, run("--print-config", env={"ATTND_SERVICE_HOST": "10.0.0.1"}).returncode)

    def test_files(self):
        self.assert_refused(run("--config", "/nonexistent"), "config: ", "No such file")
        self.assert_refused(run("--config", self.folder.name), "config: ", "regular file")
        self.assert_refused(run("--config", self.file("c", b"{" + b" " * (100 << 20))), "config: ", "1048576")
        self.assert_refused(run("--config", self.file("c", b'{"port": 1]')), "config: not JSON: line 1")
        self.assert_refused(run("--config", self.file("c", b'{"model": "\xff"}')), "config: not JSON")

    def test_precedence(self):
        config = self.file("c.json", '{"port": 1001, "context": 1001, "threads": 2, "allow-host": ["a"]}')
        done = run("--config", config, "--port", "1003", "--print-config", env={"ATTND_PORT": "1002", "ATTND_CONTEXT": "1002"})
        got = json.loads(done.stdout)
        self.assertEqual((1003, 1002, 2, ["a"]), (got["port"], got["context"], got["threads"], got["allow-host"]))
        done = run("--print-config", env={"ATTND_CONFIG": config})
        self.assertEqual(1001, json.loads(done.stdout)["port"])

    def test_print_config_is_a_config(self):
        first = run("--print-config", "--model", "m.gguf", "--kv-bytes", "3000", "--allow-host", "a,b", "--strict-model").stdout
        second = run("--print-config", "--config", self.file("c.json", first)).stdout
        self.assertEqual(first, second)

    def test_print_config_holds_no_keys(self):
        keys = self.file("keys", "secret-key-1 ann all\n")
        done = run("--print-config", "--api-key-file", keys)
        self.assertNotIn("secret-key-1", done.stdout + done.stderr)

    def test_check_config(self):
        done = run("--model", attnd_client.TINY_LLAMA, "--check-config")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assert_refused(run("--check-config"), "model: ", "needed")
        self.assert_refused(run("--model", "/nonexistent.gguf", "--check-config"), "model: ")

    def test_help_and_version(self):
        done = run("--help")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        for name in self.options():
            self.assertIn(f"--{name}", done.stdout)
        self.assertRegex(run("--version").stdout, r"^attnd \d+\.\d+\.\d+\n$")

    def test_keys(self):
        model = ["--model", attnd_client.TINY_LLAMA, "--check-config"]
        for text, words in (("", "no key"), ("k ann\n", "line 1"), ("k ann fly\n", "rights"), ("a b infer\na c infer\n", "line 2")):
            self.assert_refused(run(*model, "--api-key-file", self.file("keys", text)), "api-key-file: ", words)
        self.assert_refused(run(*model, "--api-key-file", "/nonexistent"), "api-key-file: ", "No such file")

    def test_open_to_the_network(self):
        model = ["--model", attnd_client.TINY_LLAMA, "--check-config"]
        for host in ("0.0.0.0", "::", "10.1.2.3"):
            self.assert_refused(run(*model, "--host", host), "host: ", "--api-key-file", "--allow-open")
            self.assertEqual(0, run(*model, "--host", host, "--allow-open").returncode)
            self.assertEqual(0, run(*model, "--host", host, "--api-key-file", self.file("keys", "k ann all\n")).returncode)
        for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
            self.assertEqual(0, run(*model, "--host", host).returncode, host)
        for host in ("example.com", "127.0.0.1.", "1", "0.0.0.0/0", "[::1]"):
            for more in ((), ("--check-config",), ("--api-key-file", self.file("keys", "k ann all\n"), "--check-config")):
                self.assert_refused(run("--model", attnd_client.TINY_LLAMA, "--host", host, "--allow-open", *more), "host: ", "address")

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = run("--model", attnd_client.TINY_LLAMA, "--port", str(port))
        self.assert_refused(done, "port: ", str(port), "in use", code=1)

    def test_models_that_do_not_load(self):
        for name, text in (("a.gguf", b""), ("b.gguf", b"GGUF"), ("c.gguf", os.urandom(5000)), ("d.gguf", open(attnd_client.TINY_LLAMA, "rb").read()[:5000])):
            done = run("--model", self.file(name, text), "--port", "0")
            self.assertEqual(2, done.returncode, done.stderr)
            said = [line for line in done.stderr.splitlines() if line.startswith("attnd: ")]
            self.assertEqual(1, len(said), done.stderr)
        self.assertEqual(2, run("--model", self.folder.name, "--port", "0").returncode)
        done = run("--model", attnd_client.TINY_LLAMA, "--port", "0", "--context", "1000000")
        self.assertEqual(2, done.returncode)
        self.assertIn("attnd: context: ", done.stderr)

    def test_listens_where_told(self):
        for host in ("localhost", "::1", "127.0.0.1"):
            with attnd_client.Server(attnd_client.TINY_LLAMA, "--host", host) as s:
                lines = [line for line in s.lines if "listening on" in line]
                shown = f"[{host}]" if ":" in host else host
                self.assertEqual([f"listening on http://{shown}:{s.port}\n"], lines)


if __name__ == "__main__":
    attnd_client.main()
