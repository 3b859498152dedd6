"""The rules of structure that a compiler does not see: include ranks, file sizes, function sizes, banned calls, unique names."""
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANKS = [["include/attnd", "core/base"], ["core/tensor"], ["core/backend"], ["core/load", "core/token"], ["core/kv"], ["core/probe"], ["core/model"],
         ["core/sample"], ["core/sched"], ["server/session"], ["server/api"], ["server/http"], ["server/loop"], ["server"]]
LIBRARIES = {  # which folders (or files) may include a library
    "uv.h": ["server/loop"],
    "microhttpd.h": ["server/http", "server/loop"],
    "jansson.h": ["core/load", "core/token", "server/api", "server/config.c"],
    "cblas.h": ["core/backend/blas.c"],
}
BANNED = r"\b(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|alloca|system|popen|rand|srand)\s*\("
LIBM = r"\b(exp|expf|tanh|tanhf|sin|sinf|cos|cosf|pow|powf|log|logf|exp2|exp2f|log2|log2f)\s*\("
MAX_FILE, MAX_FUNCTION = 500, 80


def sources():
    out = subprocess.run(["git", "ls-files", "*.c", "*.h"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [p for p in out if not p.startswith("tests/")]


def rank(path):
    best = -1
    for i, folders in enumerate(RANKS):
        for folder in folders:
            if path.startswith(folder + "/") and (best < 0 or len(folder) >= len(RANKS[best][0])):
                best = i
    return best


def text(path):
    return (ROOT / path).read_text()


def code(path):
    """The text without comments and string contents."""
    t = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text(path), flags=re.S)
    t = re.sub(r"//[^\n]*", "", t)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', t)


class Layers(unittest.TestCase):
    def test_includes_go_down_the_ranks(self):
        bad = []
        for path in sources():
            for inc in re.findall(r'#include\s+[<"]([^>"]+)[>"]', text(path)):
                target = "include/" + inc if inc.startswith("attnd/") else inc
                if "/" not in target or not (ROOT / target).exists():
                    continue
                if path.startswith("include/"):
                    if not target.startswith("include/"):
                        bad.append(f"{path}: public header includes {inc}")
                elif not target.startswith("include/") and rank(target) > rank(path):
                    bad.append(f"{path} (rank {rank(path)}) includes {target} (rank {rank(target)})")
        self.assertEqual(bad, [])

    def test_libraries_stay_in_their_place(self):
        bad = []
        for path in sources():
            for inc in re.findall(r"#include\s+<([^>]+)>", text(path)):
                allowed = LIBRARIES.get(inc)
                if allowed is not None and not any(path == a or path.startswith(a + "/") for a in allowed):
                    bad.append(f"{path} includes <{inc}>")
        self.assertEqual(bad, [])

    def test_no_banned_calls(self):
        bad = []
        for path in sources():
            for n, line in enumerate(code(path).split("\n"), 1):
                if re.search(BANNED, line) and "#define" not in line:
                    bad.append(f"{path}:{n}: {line.strip()}")
                if path.startswith(("core/backend", "core/model", "core/sample")) and re.search(LIBM, line):
                    bad.append(f"{path}:{n}: libm in engine arithmetic: {line.strip()}")
                if "getenv(" in line and path != "server/config.c":
                    bad.append(f"{path}:{n}: getenv outside server/config.c")
        self.assertEqual(bad, [])

    def test_sizes(self):
        bad = []
        for path in sources():
            lines = text(path).split("\n")
            if len(lines) > MAX_FILE:
                bad.append(f"{path}: {len(lines)} lines, at most {MAX_FILE}")
            start = None
            for n, line in enumerate(lines, 1):
                if line == "{":
                    start = n
                elif line == "}" and start is not None:
                    if n - start > MAX_FUNCTION:
                        bad.append(f"{path}:{start}: a function of {n - start} lines, at most {MAX_FUNCTION}")
                    start = None
        self.assertEqual(bad, [])

    def test_every_file_opens_with_its_purpose(self):
        bad = [p for p in sources() if not text(p).lstrip().startswith("/*")]
        self.assertEqual(bad, [])

    def test_file_names_are_unique(self):
        seen, bad = {}, []
        for path in sources():
            name = pathlib.Path(path).name
            key = (name, path.startswith("include/"))
            if path.endswith(".c") and key in seen:
                bad.append(f"{path} and {seen[key]}")
            seen[key] = path
        self.assertEqual(bad, [])

    def test_no_marks_left(self):
        bad = []
        for path in sources():
            for n, line in enumerate(text(path).split("\n"), 1):
                if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line):
                    bad.append(f"{path}:{n}: {line.strip()}")
        self.assertEqual(bad, [])


if __name__ == "__main__":
    unittest.main()
