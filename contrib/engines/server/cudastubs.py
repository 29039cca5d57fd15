# SPDX-License-Identifier: Apache-2.0
"""Builds what a CUDA build of torch links and a machine without a driver lacks: for each missing library
a shared object of that name in torch/lib, with the symbols and the symbol versions that torch's libraries
ask for. Every function says "no device" (100). Usage: cudastubs.py TORCH_LIB_DIRECTORY"""

import glob
import os
import re
import subprocess
import sys
import tempfile

CUDA = re.compile(r"(cu[A-Z]|cuda|cudnn|cublas|cufft|curand|cusolver|cusparse|cuFile|cupti|nccl|nvrtc|nvshmem|nvml|nvtx)")
STRINGS = re.compile(r"(GetErrorString|GetErrorName|GetLastErrorText|get_error_string|GetResultString|getErrorMsg|GetErrorMessage)", re.I)


def readelf(*args):
    return subprocess.run(["readelf", "-W", *args], capture_output=True, text=True, check=True).stdout


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path))


def version_files(path):
    """Version name -> library, of what the file needs."""
    found, library = {}, None
    for line in readelf("-V", path).splitlines():
        match = re.search(r"File: (\S+)", line)
        if match:
            library = match.group(1)
        match = re.search(r"Name: (\S+)\s+Flags", line)
        if match and library:
            found[match.group(1)] = library
    return found


def symbols(path):
    undefined, defined = set(), set()
    for line in readelf("--dyn-syms", path).splitlines():
        part = line.split()
        if len(part) < 8 or not part[0].endswith(":") or not part[0][:-1].isdigit():
            continue
        (undefined if part[6] == "UND" else defined).add(part[7])
    return undefined, defined


def system_libraries():
    text = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in text.splitlines() if "=>" in line}


def build(directory, name, versions):
    """versions: version name ("" for none) -> symbols"""
    with tempfile.TemporaryDirectory() as work:
        source, script = os.path.join(work, "s.c"), os.path.join(work, "s.map")
        with open(source, "w") as out:
            for symbol in sorted(set().union(*versions.values())):
                text = 'const char *%s(void) { return "no device"; }\n' if STRINGS.search(symbol) else "long %s(void) { return 100; }\n"
                out.write(text % symbol)
        with open(script, "w") as out:
            for version, names in sorted(versions.items()):
                if version:
                    out.write("%s { global: %s };\n" % (version, " ".join(n + ";" for n in sorted(names)) or "hc_none;"))
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", os.path.join(directory, name), f"-Wl,-soname,{name}", source]
        if any(versions):
            command.append(f"-Wl,--version-script,{script}")
        subprocess.run(command, check=True)


def main():
    directory = sys.argv[1]
    libraries = glob.glob(os.path.join(directory, "*.so*"))
    there = {os.path.basename(p) for p in libraries} | system_libraries()
    missing, wanted, plain, have = set(), {}, set(), set()
    for path in libraries:
        missing |= {n for n in needed(path) if n not in there and re.match(r"lib(cu|nc|nv)", n)}
        files = version_files(path)
        undefined, defined = symbols(path)
        have |= {d.split("@")[0] for d in defined}
        for symbol in undefined:
            name, _, version = symbol.partition("@")
            if not version:
                plain.add(name)
            elif files.get(version) and files[version] not in there:
                wanted.setdefault(files[version], {}).setdefault(version, set()).add(name)
    plain = {p for p in plain - have if CUDA.match(p)}
    names = sorted(missing | set(wanted))
    # Symbols without a version may be anywhere: in a library that is always loaded.
    always = [n for n in names if n.startswith("libcudart")] or names
    for name in names:
        versions = wanted.get(name, {})
        if name in always:
            versions.setdefault("", set()).update(plain)
        build(directory, name, versions or {"": set()})
    print(f"{len(names)} libraries stood in for")


main()
