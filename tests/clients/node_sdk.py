"""Runs node_sdk.cjs against a server of its own.

    NODE_PATH=.../node_modules ATTND_BIN=build/release/attnd python3 tests/clients/node_sdk.py
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
import attnd_client  # noqa: E402

if __name__ == "__main__":
    with attnd_client.Server() as server:
        env = {**os.environ, "URL": f"http://{server.host}:{server.port}"}
        sys.exit(subprocess.run(["node", os.path.join(HERE, "node_sdk.cjs")], env=env, timeout=120).returncode)
