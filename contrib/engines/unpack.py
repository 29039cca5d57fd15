# SPDX-License-Identifier: Apache-2.0
"""Unpacks from a wheel what starts with one of the prefixes (all, if there is none): the compiled file
module of an engine, and not its gigabyte of kernels. Usage: unpack.py WHEEL DIRECTORY [PREFIX...]"""

import sys
import zipfile

wheel, directory, *prefixes = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = [n for n in archive.namelist() if not prefixes or n.startswith(tuple(prefixes))]
    names += [n for n in archive.namelist() if n.endswith(".dist-info/METADATA") and n not in names]
    archive.extractall(directory, names)
print(f"{wheel.rsplit('/', 1)[-1]}: {len(names)} files")
