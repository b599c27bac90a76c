#!/usr/bin/env python3
"""Checks every crate in Cargo.lock against deny.toml: licences, bans and sources, as `cargo deny check licenses bans sources` does.

cargo-deny itself takes many minutes to build; this reads the same file and what `cargo metadata` says, in a second.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def allows(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression can be met with allowed licences only. AND binds tighter than OR, a slash is an old OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def peek() -> str | None:
        return tokens[position] if position < len(tokens) else None

    def take() -> str:
        nonlocal position
        if position == len(tokens):
            raise ValueError(f"the licence {expression!r} ends too early")
        position += 1
        return tokens[position - 1]

    def either() -> bool:
        result = both()
        while peek() == "OR":
            take()
            # Not `or`: the right side must be read in any case.
            result = both() | result
        return result

    def both() -> bool:
        result = one()
        while peek() == "AND":
            take()
            result = one() & result
        return result

    def one() -> bool:
        token = take()
        if token == "(":
            result = either()
            if take() != ")":
                raise ValueError(f"the licence {expression!r} lacks a parenthesis")
            return result
        if peek() == "WITH":
            take()
            token = f"{token} WITH {take()}"
        return token in allowed

    result = either()
    if peek() is not None:
        raise ValueError(f"the licence {expression!r} has {peek()!r} where its end was expected")
    return result


def complaints(package: dict, rules: dict) -> list[str]:
    """What is wrong with one crate."""
    found = []
    source = package["source"]
    if source is not None and source.removeprefix("registry+") not in rules["sources"]["allow-registry"]:
        found.append(f"comes from {source}")
    if package["name"] in {ban["crate"] for ban in rules["bans"]["deny"]}:
        found.append("is banned in deny.toml")
    exceptions = (each["allow"] for each in rules["licenses"].get("exceptions", []) if each["crate"] == package["name"])
    allowed = set(rules["licenses"]["allow"]).union(*exceptions)
    licence = package["license"]
    if licence is None:
        found.append("names no licence")
    elif not allows(licence, allowed):
        found.append(f"has the licence {licence}, which deny.toml does not allow")
    return found


def main() -> int:
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--all-features"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    wrong = [f"{package['name']} {package['version']} {complaint}" for package in metadata["packages"] for complaint in complaints(package, rules)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(metadata['packages'])} crates checked, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
