# SPDX-License-Identifier: Apache-2.0
"""Sends five prompts to a server and prints a line each: tokens of the prompt, tokens that came from
storage, the answer's tokens. Usage: ask.py PORT"""

import json
import random
import sys
import urllib.request

port = int(sys.argv[1])
for n in (400, 650, 1024, 1300, 1724):
    ids = [random.Random(n * 1000 + i).randrange(10, 390) for i in range(n)]
    body = {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=240) as answer:
        got = json.load(answer)
    details = got["meta_info"].get("cached_tokens_details") or {}
    print(n, details.get("storage", 0), " ".join(str(t) for t in got["output_ids"]))
