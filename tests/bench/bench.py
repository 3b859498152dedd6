"""Runs attnd-bench and llama-bench in turns and prints medians and ratios as a Markdown table, with both full commands."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess


def ours(args):
    cmd = [args.bench, "-m", args.model, "--backend", args.backend, "-t", str(args.threads), "-p", "512", "-n", "32"]
    out = subprocess.run(cmd, capture_output=True, text=True, check=True).stdout
    return cmd, {r["test"]: r["tokens_per_second"] for r in map(json.loads, out.splitlines())}


def theirs(args):
    cmd = [args.peer, "-m", args.model, "-t", str(args.threads), "-p", "512", "-n", "32", "-r", "1", "-o", "json"]
    env = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(args.peer).parent))
    out = subprocess.run(cmd, capture_output=True, text=True, check=True, env=env).stdout
    rows = json.loads(out)
    return cmd, {("pp%d" % r["n_prompt"] if r["n_prompt"] else "tg%d" % r["n_gen"]): r["avg_ts"] for r in rows}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--bench", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--peer")
    p.add_argument("--backend", default="auto")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--runs", type=int, default=5)
    args = p.parse_args()
    sides = [("attnd", ours)] + ([("llama.cpp", theirs)] if args.peer else [])
    seen = {name: {} for name, _ in sides}
    commands = {}
    for _ in range(args.runs):
        for name, run in sides:
            commands[name], result = run(args)
            for test, value in result.items():
                seen[name].setdefault(test, []).append(value)
    for name in commands:
        print(f"{name}: {' '.join(commands[name])}")
    print(f"\n{args.runs} alternating runs, medians, tokens/s (lowest .. highest)\n")
    print("| test | " + " | ".join(seen) + (" | ratio |" if args.peer else " |"))
    print("|---|" + "---|" * (len(seen) + bool(args.peer)))
    for test in seen["attnd"]:
        cells, medians = [], []
        for name in seen:
            values = seen[name][test]
            medians.append(statistics.median(values))
            cells.append(f"{medians[-1]:.1f} ({min(values):.1f} .. {max(values):.1f})")
        ratio = f" | {medians[0] / medians[1]:.2f} |" if args.peer else " |"
        print(f"| {test} | " + " | ".join(cells) + ratio)


if __name__ == "__main__":
    main()
