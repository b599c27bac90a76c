#!/usr/bin/env python3
"""Records what kube-apiserver says about valid and invalid custom resources and about schemas of CRDs.

    record_schema.py <kubeconfig> validate > crates/machinery/src/schema/validate/recorded.json
    record_schema.py <kubeconfig> structural > crates/machinery/src/schema/structural/recorded.json
    record_schema.py <kubeconfig> decode > crates/machinery/src/builtin/recorded.json

The unit tests beside these files give the same cases to our code and expect the same causes. Needs PyYAML and a server
that may be written to: a CRD named things.probe.io is made and removed.
"""

import base64
import json
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/probe.io/v1/namespaces/default/things"


class Server:
    def __init__(self, kubeconfig):
        config = yaml.safe_load(open(kubeconfig))
        user = config["users"][0]["user"]
        self.url = config["clusters"][0]["cluster"]["server"]
        self.tls = ssl.create_default_context()
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE
        with tempfile.NamedTemporaryFile() as cert, tempfile.NamedTemporaryFile() as key:
            cert.write(base64.b64decode(user["client-certificate-data"]))
            key.write(base64.b64decode(user["client-key-data"]))
            cert.flush(), key.flush()
            self.tls.load_cert_chain(cert.name, key.name)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data,
                                         headers={"Content-Type": "application/json", "Accept": "application/json"})
        try:
            return json.load(urllib.request.urlopen(request, context=self.tls))
        except urllib.error.HTTPError as error:
            text = error.read()
            try:
                return json.loads(text)
            except ValueError:
                return {"kind": "Status", "code": error.code, "message": text.decode()}


def causes(answer):
    """The field errors of an answer, each as [reason, field, message]; none when it was a success."""
    if answer.get("kind") != "Status":
        return []
    details = answer.get("details") or {}
    if not details.get("causes"):
        return [[answer.get("reason", ""), "", answer["message"]]]
    return [[cause["reason"], cause.get("field", ""), cause["message"]] for cause in details["causes"]]


def crd(schema, **version):
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.probe.io"},
            "spec": {"group": "probe.io", "scope": "Namespaced",
                     "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
                     "versions": [{"name": "v1", "served": True, "storage": True,
                                   "schema": {"openAPIV3Schema": schema}, **version}]}}


def install(server, schema):
    remove(server)
    answer = server.call("POST", CRDS, crd(schema))
    assert answer.get("kind") != "Status", answer
    for _ in range(100):
        listed = server.call("GET", THINGS)
        if listed.get("kind") == "ThingList":
            # The server may still answer with the validation of an older CRD of that name for a moment.
            time.sleep(1)
            return
        time.sleep(0.1)
    raise SystemExit("the CRD was not established")


def remove(server):
    server.call("DELETE", CRDS + "/things.probe.io")
    while server.call("GET", CRDS + "/things.probe.io").get("kind") != "Status":
        time.sleep(0.1)


def thing(spec, version=None):
    metadata = {"name": "x"} if version is None else {"name": "x", "resourceVersion": version}
    return {"apiVersion": "probe.io/v1", "kind": "Thing", "metadata": metadata, "spec": spec}


def text(**more):
    return {"type": "string", **more}


def obj(properties, **more):
    return {"type": "object", "properties": properties, **more}


VALUES = obj({"spec": obj({
    "req": text(),
    "i": {"type": "integer"}, "i32": {"type": "integer", "format": "int32"}, "n": {"type": "number"},
    "s": text(minLength=2, maxLength=4, pattern="^[a-z]+$"),
    "e": text(enum=["a", "b"]), "ei": {"type": "integer", "enum": [1, 2]}, "en": text(enum=["a"], nullable=True),
    "min": {"type": "integer", "minimum": 3, "maximum": 5},
    "xmin": {"type": "number", "minimum": 1.5, "exclusiveMinimum": True, "multipleOf": 0.5},
    "xmax": {"type": "integer", "maximum": 5, "exclusiveMaximum": True}, "mul": {"type": "integer", "multipleOf": 3},
    "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": text()},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
    "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": obj({"k": text(), "v": text(maxLength=3)}, required=["k"])},
    "map2": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
             "items": obj({"k": text(), "p": text(default="x")}, required=["k"])},
    "m": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 3}},
    "dt": text(format="date-time"), "ip": text(format="ipv4"), "uri": text(format="uri"), "byte": text(format="byte"),
    "b": {"type": "boolean"}, "ios": {"x-kubernetes-int-or-string": True},
    "one": obj({"a": text(), "b": text()}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "any": obj({"a": text(), "b": text()}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "not": {**obj({"a": text()}), "not": {"required": ["a"]}},
    "all": {"type": "integer", "allOf": [{"minimum": 5}, {"minimum": 7}]},
    "branch": obj({"kind": text(), "x": text(), "y": text()}, oneOf=[
        {"properties": {"kind": {"enum": ["x"]}}, "required": ["x"]},
        {"properties": {"kind": {"enum": ["y"]}}, "required": ["y"]}]),
    "emb": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    "props": {"type": "object", "minProperties": 2, "maxProperties": 3, "additionalProperties": text()},
    "cel": obj({"a": {"type": "integer"}, "b": {"type": "integer"}, "t": text(), "m": {
                "type": "object", "additionalProperties": text()}}, **{"x-kubernetes-validations": [
        {"rule": "!has(self.a) || !has(self.b) || self.a <= self.b"},
        {"rule": "!has(self.a) || self.a < 100", "message": "a too big", "fieldPath": ".a",
         "reason": "FieldValueForbidden"},
        {"rule": "!has(self.a) || self.a != 8", "reason": "FieldValueRequired", "message": "not eight"},
        {"rule": "!has(self.a) || self.a != 9", "reason": "FieldValueDuplicate"},
        {"rule": "!has(self.m) || !('no' in self.m)", "fieldPath": ".m['no']", "message": " trimmed "},
        {"rule": "self.a != 7", "messageExpression": "'a is seven'"},
        {"rule": "!has(self.t) || !has(oldSelf.t) || self.t == oldSelf.t", "message": "t is immutable"}]}),
    "celi": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}, {"rule": "10/self > 1"}]},
    "celb": {"type": "boolean", "x-kubernetes-validations": [{"rule": "self"}]},
}, required=["req"], maxProperties=20)})

BAD = [
    {}, {"req": 5}, {"req": None}, {"i": "a"}, {"i": 1.5}, {"i": 2.0}, {"i": True}, {"i": 10**20}, {"i32": 1.5},
    {"i32": True}, {"i32": 3000000000}, {"i32": "1"}, {"n": "a"}, {"n": 1}, {"s": "a"}, {"s": "abcde"}, {"s": "A1"},
    {"s": "ab\n\"<"}, {"e": "c"}, {"e": 5}, {"ei": 3}, {"ei": 2.0}, {"en": None}, {"min": 2}, {"min": 6}, {"xmin": 1.5},
    {"xmin": 1.7}, {"xmin": 2}, {"xmax": 5}, {"mul": 4}, {"l": []}, {"l": ["a", "b", "c"]}, {"l": ["a", 5]},
    {"l": "a"}, {"l": [None]}, {"set": ["a", "a", "a"]}, {"map": [{"k": "a"}, {"k": "a"}]}, {"map": ["x"]},
    {"map2": [{"k": "a"}, {"k": "a"}]}, {"map": [{"v": "a"}]}, {"m": {"a.b": 4}}, {"m": {"a": "x"}}, {"dt": "x"},
    {"dt": 5}, {"dt": []}, {"ip": "1.2.3"}, {"ip": "10.0.0.010"}, {"uri": "nope"}, {"byte": "***"}, {"b": "x"},
    {"ios": True}, {"ios": 1.5}, {"ios": [1]}, {"one": {}}, {"one": {"a": "1", "b": "2"}}, {"any": {}},
    {"not": {"a": "x"}}, {"all": 6}, {"all": 1}, {"branch": {"kind": "y"}}, {"branch": {"kind": "z", "x": "1"}},
    {"emb": {"metadata": {"name": "_/"}}},
    {"emb": {"apiVersion": "", "kind": "A_b", "metadata": {"labels": {"a": "b c"}}}},
    {"emb": {"apiVersion": "a/b/c", "kind": "X"}}, {"props": {}}, {"props": {"a": "", "b": "", "c": "", "d": ""}},
    {"cel": {"a": 5, "b": 3}}, {"cel": {"a": 500}}, {"cel": {"a": 7}}, {"cel": {"a": 8}}, {"cel": {"a": 9}},
    {"cel": {}}, {"cel": {"a": 1, "m": {"no": ""}}}, {"celi": 2}, {"celi": 0}, {"celb": False},
    {"cel": {"a": 7}, "s": "abcdef"},
]

UPDATES = [
    ({"s": "abcde", "e": "c"}, {"s": "abcde", "e": "c", "i": 1}), ({"s": "abcde"}, {"s": "abcdef"}),
    ({"map": [{"k": "a", "v": "long"}, {"k": "b"}]}, {"map": [{"k": "b"}, {"k": "a", "v": "long"}]}),
    ({"map": [{"k": "a", "v": "long"}]}, {"map": [{"k": "a", "v": "longer"}]}),
    ({"l": ["a", "b", "c"]}, {"l": ["a", "b", "c"], "i": 1}), ({"l": ["a", "b", "c"]}, {"l": ["a", "b", "d"]}),
    ({"set": ["a", "a"]}, {"set": ["a", "a", "b"]}), ({"set": ["a"]}, {"set": ["a", "a"]}),
    ({"cel": {"a": 1, "t": "x"}}, {"cel": {"a": 1, "t": "y"}}), ({"celi": 1}, {"celi": 1, "i": 1}),
    ({"celi": 1}, {"celi": 2}), ({"cel": {"a": 7, "b": 8}}, {"cel": {"a": 7, "b": 9}}),
    ({"cel": {"a": 7}}, {"cel": {"a": 7}, "i": 1}), ({"m": {"a": 9}}, {"m": {"a": 9, "b": 1}}),
    ({"any": {}}, {"any": {}, "i": 1}), ({"cel": {}}, {"cel": {}, "i": 1}),
]


def lenient(node):
    """The schema without what it checks, to store objects that it would refuse."""
    if isinstance(node, dict) and "properties" in node or isinstance(node, dict) and "type" in node:
        drop = {"required", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum",
                "oneOf", "anyOf", "not", "allOf", "multipleOf", "minProperties", "maxProperties", "format",
                "exclusiveMinimum", "exclusiveMaximum", "x-kubernetes-validations", "x-kubernetes-list-type",
                "x-kubernetes-list-map-keys"}
        return {key: ({name: lenient(child) for name, child in value.items()} if key == "properties" else
                      lenient(value) if key in ("items", "additionalProperties") else value)
                for key, value in node.items() if key not in drop}
    return node


def change_schema(server, schema):
    current = server.call("GET", CRDS + "/things.probe.io")
    current["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    answer = server.call("PUT", CRDS + "/things.probe.io", current)
    assert answer.get("kind") != "Status", answer
    time.sleep(2)


def record_validate(server):
    install(server, VALUES)
    cases = []
    for spec in BAD:
        whole = spec if not spec or "req" in spec else {"req": "x", **spec}
        cases.append({"new": whole, "causes": causes(server.call("POST", THINGS + "?dryRun=All", thing(whole)))})
    remove(server)
    install(server, lenient(VALUES))
    for number, (old, new) in enumerate(UPDATES):
        body = thing({"req": "x", **old})
        body["metadata"]["name"] = f"x{number}"
        answer = server.call("POST", THINGS, body)
        assert answer.get("kind") != "Status", (old, answer)
    change_schema(server, VALUES)
    for number, (old, new) in enumerate(UPDATES):
        old, new = {"req": "x", **old}, {"req": "x", **new}
        current = server.call("GET", f"{THINGS}/x{number}")
        current["spec"] = new
        answer = server.call("PUT", f"{THINGS}/x{number}?dryRun=All", current)
        cases.append({"old": old, "new": new, "causes": causes(answer)})
    remove(server)
    return {"schema": VALUES, "cases": cases}


LIST_MAP = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}

# Schemas of one field of spec.
NODES = [
    {}, {"type": "strnig"}, {"type": "null"}, {"type": "array"}, {"type": "array", "items": {}},
    {"type": "array", "items": [text()]}, {"$ref": "#/x"}, {"type": "object", "id": "x"},
    {"type": "object", "definitions": {"a": text()}}, {"type": "object", "dependencies": {"a": ["b"]}},
    {"type": "object", "patternProperties": {"a": text()}}, {"type": "array", "items": text(), "additionalItems": True},
    {"type": "array", "items": text(), "uniqueItems": True},
    obj({"a": text()}, additionalProperties=text()), obj({"a": text()}, additionalProperties=False),
    obj({"a": {}}), {"type": "object", "additionalProperties": {}},
    {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
    {"x-kubernetes-int-or-string": True, "x-kubernetes-embedded-resource": True},
    {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
    {"type": "string", "x-kubernetes-embedded-resource": True}, {"x-kubernetes-embedded-resource": True},
    {"type": "object", "x-kubernetes-embedded-resource": True},
    {"type": "object", "x-kubernetes-embedded-resource": True, "additionalProperties": text()},
    obj({"metadata": text(), "kind": {"type": "integer"}}, **{"x-kubernetes-embedded-resource": True}),
    obj({"metadata": {"type": "object", "x-kubernetes-embedded-resource": True,
                      "x-kubernetes-preserve-unknown-fields": True}}, **{"x-kubernetes-embedded-resource": True}),
    text(pattern="("), {"type": "string", "anyOf": [{"type": "string"}]},
    {"type": "string", "allOf": [{"description": "x", "title": "y", "default": "z", "nullable": True}]},
    {"type": "object", "oneOf": [{"properties": {"a": {"minLength": 1}}}]},
    {"type": "object", "not": {"additionalProperties": text()}},
    {"type": "array", "items": text(), "anyOf": [{"items": {"minLength": 1}}, {"x-kubernetes-list-type": "set"}]},
    obj({"a": text()}, allOf=[{"properties": {"metadata": {"minLength": 1}, "a": {"minLength": 1}}}]),
    {"type": "object", "anyOf": [{"x-kubernetes-preserve-unknown-fields": True}, {"x-kubernetes-int-or-string": True},
                                 {"x-kubernetes-embedded-resource": True}, {"x-kubernetes-map-type": "atomic"},
                                 {"x-kubernetes-list-map-keys": ["a"]},
                                 {"x-kubernetes-validations": [{"rule": "true"}]}]},
    {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]},
                                                   {"minimum": 1}]},
    {"x-kubernetes-list-type": "set"}, {"type": "object", "x-kubernetes-list-type": "set"},
    {"type": "array", "x-kubernetes-list-type": "bag", "items": text()},
    {"type": "array", "x-kubernetes-list-type": "set", "items": obj({"a": text()})},
    {"type": "array", "x-kubernetes-list-type": "set",
     "items": {"type": "array", "items": text(), "x-kubernetes-list-type": "set"}},
    {"type": "array", "x-kubernetes-list-type": "set", "items": text(nullable=True)},
    {"type": "array", "items": text(), "x-kubernetes-list-map-keys": ["a"]},
    {"type": "array", "items": text(), "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"]},
    {"type": "array", "x-kubernetes-list-type": "map", "items": obj({"k": text()}, required=["k"])},
    {**LIST_MAP, "items": text()}, LIST_MAP, {**LIST_MAP, "items": obj({"a": text()})},
    {**LIST_MAP, "items": obj({"k": text()})}, {**LIST_MAP, "items": obj({"k": text(nullable=True)}, required=["k"])},
    {**LIST_MAP, "items": obj({"k": obj({})}, required=["k"])},
    {**LIST_MAP, "x-kubernetes-list-map-keys": ["k", "k"], "items": obj({"k": text()}, required=["k"])},
    {"x-kubernetes-map-type": "atomic"}, {"type": "string", "x-kubernetes-map-type": "atomic"},
    {"type": "object", "x-kubernetes-map-type": "loose"},
    text(default=5), obj({"a": text()}, default={"b": 1}), obj({"a": text()}, default={"a": 1}, required=["c"]),
    text(default="ab", maxLength=1), {"type": "array", "items": text(default="x")},
    {"type": "object", "additionalProperties": text(default="x")}, text(nullable=True, default=None),
    {"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 3"}]},
    {"type": "object", "additionalProperties": obj({"a": text(default="x")})},
]

RULES = [
    {}, {"rule": " "}, {"rule": "true", "message": " "}, {"rule": "true", "message": "a\nb"},
    {"rule": "true ||\ntrue"}, {"rule": "true", "messageExpression": " "}, {"rule": "true", "reason": "Nope"},
    {"rule": "true", "fieldPath": " "}, {"rule": "true", "fieldPath": ".zzz"}, {"rule": "true", "fieldPath": "a"},
    {"rule": "self.a >"}, {"rule": "self.zzz == 1"}, {"rule": "slef.a == 1"}, {"rule": "self.a"},
    {"rule": "true", "messageExpression": "self.zzz"}, {"rule": "true", "messageExpression": "1 +"},
    {"rule": "self.l.all(e, e.zzz == 'x')"}, {"rule": "true", "optionalOldSelf": True},
    {"rule": "self.a > 0 && self.l.all(e, e.b != '')"}, {"rule": "self.a == oldSelf.a"},
    {"rule": "self.a == 1 &&\n self.zzz == 2", "message": "x"},
]

# Whole schemas.
ROOTS = [
    {"type": "string"}, {}, {"type": "object", "additionalProperties": text()}, obj({}, nullable=True),
    obj({"metadata": obj({"name": text(pattern="x")})}), obj({"metadata": obj({"labels": text()})}),
    obj({"metadata": {"type": "object", "description": "x"}}), obj({"metadata": text()}),
    obj({"kind": {"type": "integer"}, "apiVersion": {"type": "integer"}}), obj({"kind": text(default="x")}),
    obj({"metadata": obj({"name": text(default="x")})}), obj({}, default={}),
    obj({"spec": obj({"l": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [
        {"rule": "self == oldSelf"}]}}})}),
    obj({"spec": obj({"a": {"type": "integer"}})}, **{"x-kubernetes-validations": [
        {"rule": "self.metadata.name != ''"}, {"rule": "self.zzz == 1"}, {"rule": "self.spec.a == 1"}]}),
]


def record_structural(server):
    remove(server)
    cases = []
    for node in NODES:
        cases.append({"schema": obj({"spec": obj({"x": node})})})
    for rule in RULES:
        node = obj({"a": {"type": "integer"}, "l": {"type": "array", "maxItems": 3, "items": obj({"b": text(maxLength=3)})}},
                   **{"x-kubernetes-validations": [rule]})
        cases.append({"schema": obj({"spec": node})})
    cases += [{"schema": schema} for schema in ROOTS]
    cases += [{"schema": schema, "status": True}
              for schema in ({"type": "string"}, obj({}, maxProperties=3), obj({}, description="x", required=["spec"]))]
    for case in cases:
        more = {"subresources": {"status": {}}} if case.get("status") else {}
        case["causes"] = causes(server.call("POST", CRDS + "?dryRun=All", crd(case["schema"], **more)))
    return {"cases": cases}


def pod(spec=None, **metadata):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **metadata},
            "spec": {"containers": [{"name": "a", "image": "b"}], **(spec or {})}}


def container(**fields):
    return pod({"containers": [{"name": "a", "image": "b", **fields}]})


def other(version, kind, **fields):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **fields}


# Objects of built-in kinds with values that do not fit, and some that look as if.
DECODE = [
    pod(), pod({"hostNetwork": "x"}), pod({"hostNetwork": [1]}), pod({"containers": "x"}), pod({"containers": ["x"]}),
    container(name=5), container(ports=[{"containerPort": "x"}]), pod({"priority": 1.5}), pod({"priority": 3000000000}),
    pod({"priority": True}), pod({"nodeSelector": {"a": 1}}), pod({"nodeSelector": "x"}),
    container(resources={"limits": {"cpu": True}}), container(resources={"limits": {"cpu": "abc"}}),
    container(resources={"limits": {"cpu": 0.5, "memory": "1Gi"}}), container(resources={"limits": "x"}),
    container(livenessProbe={"httpGet": {"port": True}}), container(livenessProbe={"httpGet": {"port": 1.5}}),
    container(livenessProbe={"exec": "x"}), container(livenessProbe={"periodSeconds": "x"}),
    container(env=[{"name": "a", "valueFrom": {"secretKeyRef": {"name": 1}}}]), container(command=[1]),
    container(env=[{"name": "a", "valueFrom": {"secretKeyRef": {"optional": 1}}}]),
    pod(creationTimestamp="x"), pod(creationTimestamp="2026-11-15T10:00"), pod(creationTimestamp=None),
    pod(labels={"a": 5}), pod(generation="x"), pod(finalizers="x"), pod(deletionTimestamp=5),
    pod({"terminationGracePeriodSeconds": "x"}), pod({"tolerations": {"a": 1}}),
    pod({"volumes": [{"name": "v", "secret": {"optional": "x"}}]}), pod({"volumes": [{"name": 5}]}),
    pod({"securityContext": {"runAsUser": "x"}}), pod(ownerReferences=[{"controller": "x"}]),
    pod({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "x"}]}}}),
    other("v1", "Pod", metadata="x"), other("v1", "Pod", spec=5),
    other("v1", "Secret", data={"a": 5}), other("v1", "Secret", data={"a": "***"}), other("v1", "Secret", data="x"),
    other("v1", "ConfigMap", data={"a": 5}), other("v1", "ConfigMap", immutable="x"),
    other("v1", "Service", spec={"ports": [{"port": 80, "targetPort": {"a": 1}}]}),
    other("v1", "PersistentVolume", spec={"hostPath": {"path": 1}}),
    other("apps/v1", "Deployment", spec={"replicas": "x"}),
    other("apps/v1", "Deployment", spec={"template": {"spec": {"hostNetwork": 1}}}),
    other("coordination.k8s.io/v1", "Lease", spec={"renewTime": "x"}),
    other("autoscaling/v2", "HorizontalPodAutoscaler", spec={"maxReplicas": "1"}),
    other("storage.k8s.io/v1", "CSINode", spec={"drivers": [{"allocatable": {"count": "x"}}]}),
    other("rbac.authorization.k8s.io/v1", "ClusterRole", rules=[{"verbs": "get"}]),
    other("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec={"versions": [
        {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "required": 5}}}]}),
]
CLUSTER = {"PersistentVolume", "CSINode", "ClusterRole", "CustomResourceDefinition"}


def record_decode(server):
    cases = []
    for body in DECODE:
        version, plural = body["apiVersion"], body["kind"].lower() + "s"
        path = "/api/v1" if version == "v1" else f"/apis/{version}"
        path += "" if body["kind"] in CLUSTER else "/namespaces/default"
        answer = server.call("POST", f"{path}/{plural}?dryRun=All", body)
        message = answer.get("message") if answer.get("reason") == "BadRequest" else None
        cases.append({"object": body, "message": message})
    return {"cases": cases}


def main():
    server = Server(sys.argv[1])
    recorded = {"validate": record_validate, "structural": record_structural, "decode": record_decode}[sys.argv[2]](server)
    cases = ",\n".join("  " + json.dumps(case) for case in recorded.pop("cases"))
    rest = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in recorded.items())
    print("{" + rest + '"cases": [\n' + cases + "\n]}")


if __name__ == "__main__":
    main()
