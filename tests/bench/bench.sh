#!/usr/bin/env bash
# Speed of this build beside llama.cpp on the same file and cores: alternating runs, medians and their ratio.
#   tests/bench/bench.sh [--peer SCRIPT] [--runs N] [--threads N] [--model FILE] [--backend NAME]
# --peer SCRIPT builds the peer with SCRIPT DIR (about 15 minutes on two cores) into the cache, once; without it the peer is used if it is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/attnd
peer_dir=$cache/peers/llama-cpp
peer=$peer_dir/build/bin/llama-bench
args=()
while [ $# -gt 0 ]; do
  case $1 in
  --peer) [ -x "$peer" ] || bash "${2:?--peer takes the script that builds it}" "$peer_dir" llama-bench llama-server; shift 2 ;;
  --runs | --threads | --model | --backend) args+=("$1" "${2:?$1 takes a value}"); shift 2 ;;
  *) echo "bench.sh: unknown option $1" >&2; exit 2 ;;
  esac
done
case " ${args[*]} " in *" --model "*) ;; *) args+=(--model "$(./dev model gemma3-270m)") ;; esac
[ -x "$peer" ] && args+=(--peer "$peer") || echo "The peer is not built ($peer): this side only." >&2
exec python3 tests/bench/bench.py --bench build/release/tests/attnd-bench "${args[@]}"
