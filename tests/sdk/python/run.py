"""Runs scenarios with an official Python client and reports one JSON line each.

    BASE_URL=http://127.0.0.1:8080 API_KEY=none MODEL=m python run.py openai chat chat_stream
    BASE_URL=... python run.py anthropic            # names come line by line on stdin

A line is {"name", "ok", "detail"}. The exit code is 1 if a scenario failed.
"""

import importlib
import json
import os
import sys
import traceback

from settings import Settings

CLIENTS = ("openai", "anthropic")


def run(name: str, scenario, settings: Settings) -> dict:
    if scenario is None:
        return {"name": name, "ok": False, "detail": "no such scenario"}
    try:
        return {"name": name, "ok": True, "detail": scenario(settings)}
    except Exception:  # whatever goes wrong is the result
        return {"name": name, "ok": False, "detail": traceback.format_exc(limit=-1)}


def main() -> int:
    base_url, model = os.environ.get("BASE_URL"), os.environ.get("MODEL")
    if len(sys.argv) < 2 or sys.argv[1] not in CLIENTS or not base_url or not model:
        print(f"usage: BASE_URL=http://host:port MODEL=name run.py {'|'.join(CLIENTS)} [scenario...]", file=sys.stderr)
        return 2
    scenarios = importlib.import_module(sys.argv[1] + "_scenarios").SCENARIOS  # importing one client takes a second
    settings = Settings(base_url.rstrip("/"), os.environ.get("API_KEY") or "none", model)
    failed = False
    for name in sys.argv[2:] or (line.strip() for line in sys.stdin):
        result = run(name, scenarios.get(name), settings)
        failed = failed or not result["ok"]
        print(json.dumps(result), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
