#!/usr/bin/env python3
"""Collects what k8s-openapi does not say about the fields of built-in kinds from kube-apiserver's OpenAPI v3 documents:
how lists and maps merge, how strategic merge patches treat them, defaults and enums.

    list_facts.py <directory of *_openapi.json> > crates/machinery/src/builtin/list_facts.json

The documents are those of `api/openapi-spec/v3` of the Kubernetes release, or of `/openapi/v3/...` of a running server.
A fact of the definition itself (not of one of its fields) has the field name ".".
"""

import json
import pathlib
import sys

VERSIONS = {
    "": ["v1"],
    "admissionregistration.k8s.io": ["v1"],
    "apiextensions.k8s.io": ["v1"],
    "apiregistration.k8s.io": ["v1"],
    "apps": ["v1"],
    "authentication.k8s.io": ["v1"],
    "authorization.k8s.io": ["v1"],
    "autoscaling": ["v1", "v2"],
    "batch": ["v1"],
    "certificates.k8s.io": ["v1"],
    "coordination.k8s.io": ["v1"],
    "discovery.k8s.io": ["v1"],
    "events.k8s.io": ["v1"],
    "networking.k8s.io": ["v1"],
    "node.k8s.io": ["v1"],
    "policy": ["v1"],
    "rbac.authorization.k8s.io": ["v1"],
    "scheduling.k8s.io": ["v1"],
    "storage.k8s.io": ["v1"],
}


def facts(node):
    """The facts of one schema node, with the short names of list_facts.json."""
    found = {}
    if "x-kubernetes-list-type" in node:
        found["listType"] = node["x-kubernetes-list-type"]
    if "x-kubernetes-list-map-keys" in node:
        found["keys"] = node["x-kubernetes-list-map-keys"]
    if "x-kubernetes-patch-strategy" in node:
        found["strategy"] = node["x-kubernetes-patch-strategy"]
    if "x-kubernetes-patch-merge-key" in node:
        found["mergeKey"] = node["x-kubernetes-patch-merge-key"]
    if "x-kubernetes-map-type" in node:
        found["atomic"] = node["x-kubernetes-map-type"] == "atomic"
    # The zero value of a Go field is a default only in name.
    if node.get("default") not in (None, "", 0, False, {}):
        found["default"] = node["default"]
    if "enum" in node:
        found["enum"] = node["enum"]
    return found


def main(directory):
    collected = {}
    for group, versions in VERSIONS.items():
        for version in versions:
            name = f"apis__{group}__{version}_openapi.json" if group else f"api__{version}_openapi.json"
            document = json.loads((pathlib.Path(directory) / name).read_text())
            for definition, schema in document["components"]["schemas"].items():
                fields = {".": facts(schema)}
                for field, node in schema.get("properties", {}).items():
                    fields[field] = facts(node)
                fields = {field: found for field, found in fields.items() if found}
                if fields:
                    collected[definition] = fields
    lines = [f"{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'), sort_keys=True)}"
             for name, fields in sorted(collected.items())]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main(sys.argv[1])
