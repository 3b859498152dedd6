"""What the documents say is so: their curl examples run against a server, and the tables of docs/http.md and README.md name every
route, option, metric and member of /info that there is, and none that is not."""

import os
import re
import subprocess

import attnd_client

HERE = "http://127.0.0.1:8080"  # where the documents think that the server is
# What every curl of an example does besides: fail on an error, say the status, never hang.
CURL = 'curl() { command curl -fsS --fail-early --max-time 60 -w "%{stderr}status %{http_code}\\n" "$@"; }\n'


def read(*path):
    with open(os.path.join(attnd_client.ROOT, *path), encoding="utf-8") as f:
        return f.read()


def examples(text):
    return re.findall(r"^```sh\n(curl .*?)^```$", text, re.M | re.S)


def section(text, title):
    """From a heading to the next one of its level or above."""
    level, rest = re.search(rf"^(#+) {re.escape(title)}\n(.*)", text, re.M | re.S).groups()
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.M)[0]


class Documents(attnd_client.ServerTest):
    http, readme = read("docs", "http.md"), read("README.md")

    def run_block(self, block):
        """The finished shell and the status of each answer."""
        script = "set -euo pipefail\n" + CURL + block.replace(HERE, f"http://{self.server.host}:{self.server.port}")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)
        return done, re.findall(r"^status (\d+)$", done.stderr, re.M)

    def run_examples(self, text, least):
        answers = 0
        for block in examples(text):
            commands = re.findall(r"^curl .*", block, re.M)
            self.assertGreaterEqual(block.count(HERE), len(commands), block)
            done, codes = self.run_block(block)
            self.assertEqual(0, done.returncode, f"{block}\n{done.stdout}\n{done.stderr}")
            self.assertGreaterEqual(len(codes), len(commands), block)
            self.assertEqual([], [code for code in codes if not code.startswith("2")], block)
            answers += len(codes)
        self.assertGreaterEqual(answers, least)

    def test_examples_of_the_reference(self):
        self.run_examples(self.http, 20)

    def test_examples_of_the_readme(self):
        self.run_examples(self.readme, 3)

    def test_a_failing_example_is_seen(self):
        for bad, code in (
            (f"curl {HERE}/nowhere\n", "404"), (f"curl {HERE}/livez\ncurl {HERE}/nowhere\ncurl {HERE}/livez\n", "404"),
            (f"curl {HERE}/livez {HERE}/nowhere {HERE}/livez\n", "404"), (f"curl {HERE}/generate -d '{{}}'\n", "415"),
        ):
            self.assertEqual([bad], examples(f"text\n\n```sh\n{bad}```\n"))
            done, codes = self.run_block(bad)
            self.assertNotEqual(0, done.returncode, bad)
            self.assertEqual(code, codes[-1], bad)

    def test_routes(self):
        have = re.findall(r'^    \{"([A-Z]+)", "([^"]+)", (\w+), (true|false),', read("server", "api", "routes.c"), re.M)
        self.assertEqual(have[0][:2], ("POST", "/generate"))
        rights = {"0": "anybody", "RIGHT_INFER": "`infer`", "RIGHT_ADMIN": "`admin`"}
        want = {(method, path): (rights[who], tgi == "true") for method, path, who, tgi in have}
        said = {}
        for routes, _, who, errors in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| (.*?) \|$", section(self.http, "Routes"), re.M):
            for method, path in re.findall(r"`([A-Z]+) (\S+?)`", routes):
                said[method, path] = (who, errors in ("TGI", "of the body's kind"))
        self.assertEqual(want, said)
        for method, path in want:
            with self.subTest(path):
                self.assertGreater(self.http.count(path.split("{")[0]), 1, "named in the table alone")

    def test_metrics(self):
        scrape = set(re.findall(r"^# TYPE (\S+) (\S+)$", self.get("/metrics").text, re.M))
        self.assertGreater(len(scrape), 40)
        said = set()
        for names, kinds in re.findall(r"^\| (`(?:attnd|process)_.*?) \| (\w+(?:, \w+)*) \|", section(self.http, "Info, probes, metrics"), re.M):
            names = [name.split("{")[0] for name in re.findall(r"`(.+?)`", names)]
            kinds = [kind for kind in kinds.split(", ") if kind != "1"]
            said |= set(zip(names, kinds if len(kinds) > 1 else kinds * len(names)))
        self.assertEqual(scrape, said)

    def test_members_of_info(self):
        def names(value):
            if isinstance(value, dict):
                return set(value) | set().union(*map(names, value.values()))
            return set().union(*map(names, value)) if isinstance(value, list) else set()

        info = self.get("/info").json()
        text = section(self.http, "Info, probes, metrics") + section(self.http, "Limits")
        self.assertEqual([], sorted(name for name in names(info) if f"`{name}`" not in text))
        limits = set().union(*(re.findall(r"`(\w+)`", m) for m in re.findall(r"\[(`\w+`(?:, `\w+`)*)\]", section(self.http, "Limits"))))
        self.assertEqual(set(info["limits"]), limits)

    def test_statuses(self):
        listed = read("include", "attnd", "status.h")
        rows = re.findall(r'X\((\w+), "[^"]+", (\d+), "(\w+)"\)', listed)
        self.assertGreater(len(rows), 15)
        table = section(self.http, "Errors")
        for name, status, kind in rows:
            if name in ("OK", "CANCELLED"):  # no error; of clients that are no longer there
                continue
            with self.subTest(name):
                line = next((t for t in table.split("\n") if t.startswith(f"| {status} |") and f"`{name.lower()}`" in t), None)
                self.assertIsNotNone(line)
                self.assertIn(f"`{kind}`", line)

    def test_options(self):
        text = subprocess.run([attnd_client.binary(), "--help"], capture_output=True, text=True, check=True).stdout
        options = re.findall(r"^  (--[a-z-]+)( \S+)? +(\S.*)\n(?: {20,}(\S.*)\n)?", text, re.M)
        self.assertGreater(len(options), 25)
        everywhere = {"--config", "--check-config", "--print-config"}  # said in the text, since they are no keys
        table = section(self.readme, "Options")
        self.assertEqual({o[0] for o in options} - everywhere - {"--version"}, set(re.findall(r"^\| `(--[a-z-]+)", table, re.M)))
        for name, value, what, values in options:
            with self.subTest(name):
                if name in everywhere:
                    self.assertIn(name, self.readme)
                elif name != "--version":
                    self.assertIn(f"| `{name}{value}` | {what} | {values.replace('|', ', ')} |", table)


if __name__ == "__main__":
    attnd_client.main()
