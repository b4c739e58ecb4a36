"""Runs one real llama.cpp HTTP server and says where it listens.

The server is llama.cpp's own, in C++, carried by the wheel `xllamacpp`; this
launcher only sets its parameters. It prints `ready PORT` on stdout once the
model is loaded and runs until it is killed or its stdin ends, so that it
never outlives the process that started it.
"""

import argparse
import sys

import xllamacpp


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="path of the GGUF file")
    parser.add_argument("--alias", default="random-llama", help="model name that the server reports")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 takes a free one")
    parser.add_argument("--slots", type=int, default=4, help="requests decoded at the same time")
    parser.add_argument("--ctx", type=int, default=4096, help="context size of each slot, in tokens")
    parser.add_argument("--threads", type=int, default=1, help="threads for decoding and for prefill")
    parser.add_argument("--cache-ram", type=int, default=64, help="MiB for prompts that lost their slot; llama.cpp's default of 8 GiB is no size for a test")
    parser.add_argument("--api-key", default="", help="key that clients must send; empty for none")
    return parser.parse_args()


def params_of(args: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.model_alias = {args.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.slots
    params.n_ctx = args.slots * args.ctx
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.api_keys = [args.api_key] if args.api_key else []
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.verbosity = 2  # warnings and errors
    params.ui = False
    params.warmup = False
    params.fit_params = False  # no measuring of device memory: the model is tiny
    params.cache_ram_mib = args.cache_ram
    return params


def main() -> None:
    server = xllamacpp.Server(params_of(parse_args()))
    port = server.listening_address.rsplit(":", 1)[1]
    print("ready", port, flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
