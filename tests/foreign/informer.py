"""Informers of the official Python client see every change exactly once, across restarts of the server.

Writers own their objects, so each knows in which order its objects changed. A write whose answer was cut off may have
happened or not: its writer looks once the server is back, and nobody else can have changed the object in between.
Informers list once and then only watch, resuming at the last version that they saw. At the end three things must agree:
what the writers know, what each informer was told, and a fresh list.
"""

import argparse
import collections
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import urllib3
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

SERIAL = "example.com/serial"
GROUP, VERSION, PLURAL = "kubevirt.io", "v1", "virtualmachineinstances"
# What a client sees when a server goes away: before, during or after the answer.
CUT_OFF = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)
# A watch ends by itself now and then, so that resuming is normal and not only for restarts.
WATCH_SECONDS = 7
PATIENCE = 60


def is_cut_off(error):
    """Whether there was no answer. The client turns a cut TLS handshake into an answer with status 0, and its dynamic
    part then trips over the body that such an answer lacks."""
    if isinstance(error, AttributeError):
        error = error.__context__
    return isinstance(error, CUT_OFF) or (isinstance(error, ApiException) and error.status == 0)


def version_of(obj):
    return int(obj["metadata"]["resourceVersion"])


class Failure(Exception):
    """The server broke a promise."""


class ConfigMaps:
    """Through the typed API."""

    name = "configmaps (typed)"

    def __init__(self, api_client, namespace):
        self.api, self.plain, self.namespace = client.CoreV1Api(api_client), api_client.sanitize_for_serialization, namespace

    def body(self, name, serial, version=None):
        metadata = client.V1ObjectMeta(name=name, annotations={SERIAL: str(serial)}, resource_version=version)
        return client.V1ConfigMap(metadata=metadata, data={"serial": str(serial)})

    def get(self, name):
        return self.plain(self.api.read_namespaced_config_map(name, self.namespace))

    def create(self, name, serial):
        return self.plain(self.api.create_namespaced_config_map(self.namespace, self.body(name, serial)))

    def replace(self, name, serial, version):
        return self.plain(self.api.replace_namespaced_config_map(name, self.namespace, self.body(name, serial, version)))

    def patch(self, name, serial):
        patch = {"metadata": {"annotations": {SERIAL: str(serial)}}, "data": {"patched": str(serial)}}
        return self.plain(self.api.patch_namespaced_config_map(name, self.namespace, patch))

    def delete(self, name):
        self.api.delete_namespaced_config_map(name, self.namespace)

    def list(self):
        # As it came, to compare it with events as they came: the client's types write times in their own way.
        answer = json.loads(self.api.list_namespaced_config_map(self.namespace, _preload_content=False).data)
        # Items of a list carry no type of their own, events do.
        for item in answer["items"]:
            item.update(apiVersion="v1", kind="ConfigMap")
        return answer["items"], answer["metadata"]["resourceVersion"]

    def watch(self, version):
        return watch.Watch().stream(
            self.api.list_namespaced_config_map, self.namespace, resource_version=version,
            allow_watch_bookmarks=True, timeout_seconds=WATCH_SECONDS)


class CustomInstances:
    """VirtualMachineInstances through the API for custom objects."""

    name = "virtualmachineinstances (custom objects)"

    def __init__(self, api_client, namespace):
        self.api, self.where = client.CustomObjectsApi(api_client), (GROUP, VERSION, namespace, PLURAL)

    def body(self, name, serial, version=None):
        metadata = {"name": name, "annotations": {SERIAL: str(serial)}}
        if version:
            metadata["resourceVersion"] = version
        memory = {"guest": f"{64 + serial % 64}Mi"}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "VirtualMachineInstance", "metadata": metadata,
                "spec": {"domain": {"devices": {}, "memory": memory}}, "status": {"phase": "Running"}}

    def get(self, name):
        return self.api.get_namespaced_custom_object(*self.where, name)

    def create(self, name, serial):
        return self.api.create_namespaced_custom_object(*self.where, self.body(name, serial))

    def replace(self, name, serial, version):
        return self.api.replace_namespaced_custom_object(*self.where, name, self.body(name, serial, version))

    def patch(self, name, serial):
        patch = {"metadata": {"annotations": {SERIAL: str(serial)}}, "status": {"nodeName": f"node-{serial}"}}
        return self.api.patch_namespaced_custom_object(*self.where, name, patch)

    def delete(self, name):
        self.api.delete_namespaced_custom_object(*self.where, name)

    def list(self):
        answer = self.api.list_namespaced_custom_object(*self.where)
        return answer["items"], answer["metadata"]["resourceVersion"]

    def watch(self, version):
        # Without a documented return type the client hands events over as they are, which is what is wanted here.
        return watch.Watch().stream(
            self.api.list_namespaced_custom_object, *self.where, resource_version=version,
            allow_watch_bookmarks=True, timeout_seconds=WATCH_SECONDS)


class DynamicInstances:
    """The same objects through the dynamic client, which finds the kind by discovery."""

    name = "virtualmachineinstances (dynamic)"

    def __init__(self, api_client, namespace):
        self.namespace = namespace
        self.resource = dynamic.DynamicClient(api_client).resources.get(
            api_version=f"{GROUP}/{VERSION}", kind="VirtualMachineInstance")
        self.plain = CustomInstances(api_client, namespace)

    def get(self, name):
        return self.resource.get(name=name, namespace=self.namespace).to_dict()

    def create(self, name, serial):
        return self.resource.create(body=self.plain.body(name, serial), namespace=self.namespace).to_dict()

    def replace(self, name, serial, version):
        return self.resource.replace(body=self.plain.body(name, serial, version), namespace=self.namespace).to_dict()

    def patch(self, name, serial):
        patch = {"metadata": {"annotations": {SERIAL: str(serial)}}, "status": {"nodeName": f"node-{serial}"}}
        return self.resource.patch(
            body=patch, name=name, namespace=self.namespace, content_type="application/merge-patch+json").to_dict()

    def delete(self, name):
        self.resource.delete(name=name, namespace=self.namespace)

    def list(self):
        answer = self.resource.get(namespace=self.namespace).to_dict()
        return answer["items"], answer["metadata"]["resourceVersion"]

    def watch(self, version):
        return self.resource.watch(
            namespace=self.namespace, resource_version=version, timeout=WATCH_SECONDS, allow_watch_bookmarks=True)


class Informer(threading.Thread):
    """A cache that follows a list by watching, and notes everything it was told."""

    def __init__(self, source):
        super().__init__(daemon=True)
        self.source, self.cache, self.version = source, {}, None
        self.told = collections.defaultdict(list)
        self.relists, self.resumes, self.bookmarks, self.cuts = 0, 0, 0, 0
        self.stopping, self.failure = False, None
        self.lock = threading.Lock()

    def run(self):
        try:
            while not self.stopping:
                self.step()
        except Exception as failure:  # reported by the main thread
            self.failure = failure

    def step(self):
        try:
            if self.version is None:
                self.relist()
            self.resumes += 1
            for event in self.source.watch(self.version):
                with self.lock:
                    self.handle(event)
                if self.stopping:
                    return
        except Exception as error:
            if is_cut_off(error):
                self.cuts += 1
            elif isinstance(error, ApiException) and error.status == 410:
                self.version = None
            else:
                raise
            time.sleep(0.05)

    def relist(self):
        """Starts over: what changed unseen is told as if it had been watched."""
        items, version = self.source.list()
        with self.lock:
            fresh = {item["metadata"]["name"]: item for item in items}
            for name in set(self.cache) - set(fresh):
                self.tell("DELETED", self.cache[name])
            for name, item in fresh.items():
                if name not in self.cache:
                    self.tell("ADDED", item)
                elif version_of(self.cache[name]) != version_of(item):
                    self.tell("MODIFIED", item)
            self.version = version
            self.relists += 1

    def handle(self, event):
        kind, obj = event["type"], event["raw_object"]
        version = version_of(obj)
        if kind == "BOOKMARK":
            self.bookmarks += 1
            if version < int(self.version):
                raise Failure(f"{self.source.name}: a bookmark went back from {self.version} to {version}")
        elif version <= int(self.version):
            raise Failure(f"{self.source.name}: {kind} {obj['metadata']['name']} at {version} after {self.version}")
        else:
            self.tell(kind, obj)
        self.version = str(version)

    def tell(self, kind, obj):
        name = obj["metadata"]["name"]
        if (kind == "ADDED") == (name in self.cache):
            raise Failure(f"{self.source.name}: {kind} {name}, which is {'known' if name in self.cache else 'unknown'}")
        if kind == "DELETED":
            del self.cache[name]
        else:
            self.cache[name] = obj
        self.told[name].append((kind, version_of(obj)))


class Writer(threading.Thread):
    """Changes its own objects, one write after the other, and notes what became of each."""

    def __init__(self, number, source, writes, seed, progress):
        super().__init__(daemon=True)
        self.source, self.writes, self.progress = source, writes, progress
        self.names = [f"w{number}-{index}" for index in range(4)]
        self.random, self.serial = random.Random(seed + number), itertools.count(1)
        self.versions = {}
        # Per object: (kind of change, version), where a deletion's version is not told to the one who deletes.
        self.done = collections.defaultdict(list)
        self.unsure = self.unsure_happened = 0
        self.failure = None

    def run(self):
        try:
            for _ in range(self.writes):
                self.write(self.random.choice(self.names))
                self.progress.release()
        except Exception as failure:
            self.failure = failure

    def write(self, name):
        serial, version = next(self.serial), self.versions.get(name)
        if version is None:
            kind, work = "ADDED", lambda: self.source.create(name, serial)
        elif self.random.random() < 0.2:
            kind, work = "DELETED", lambda: self.source.delete(name)
        elif self.random.random() < 0.5:
            kind, work = "MODIFIED", lambda: self.source.replace(name, serial, version)
        else:
            kind, work = "MODIFIED", lambda: self.source.patch(name, serial)
        try:
            answer = work()
        except Exception as error:
            if not is_cut_off(error):
                raise
            self.unsure += 1
            if not self.happened(kind, name, serial):
                return
            self.unsure_happened += 1
            answer = None if kind == "DELETED" else self.read(name)
        self.versions[name] = None if kind == "DELETED" else answer["metadata"]["resourceVersion"]
        self.done[name].append((kind, None if kind == "DELETED" else version_of(answer)))

    def happened(self, kind, name, serial):
        """Whether a write that nobody answered was done."""
        found = self.read(name)
        if kind == "DELETED":
            return found is None
        return found is not None and found["metadata"]["annotations"][SERIAL] == str(serial)

    def read(self, name):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.source.get(name)
            except Exception as error:
                if isinstance(error, ApiException) and error.status == 404:
                    return None
                if not is_cut_off(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


class Server:
    """The server as its user restarts it."""

    def __init__(self, program, state):
        self.program, self.state = program, state

    def run(self, *arguments):
        command = [self.program, *arguments, "--state", self.state]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if result.returncode != 0:
            raise Failure(f"{' '.join(command)}: {result.stderr.strip()}")
        return result.stdout

    def restart(self):
        self.run("down")
        self.run("up", "--nodes", "0")

    def kill(self):
        pid = int(re.search(r"process (\d+)", self.run("status")).group(1))
        os.kill(pid, signal.SIGKILL)
        # A killed process takes a moment to be gone.
        deadline = time.monotonic() + PATIENCE
        while self.runs():
            if time.monotonic() > deadline:
                raise Failure(f"process {pid} survives kill -9")
            time.sleep(0.01)
        self.run("up", "--nodes", "0")

    def runs(self):
        return subprocess.run([self.program, "status", "--state", self.state], capture_output=True).returncode == 0


def compare(informer, writers):
    """What is wrong with what an informer was told."""
    expected = {name: changes for writer in writers for name, changes in writer.done.items()}
    with informer.lock:
        # A new namespace also gets a ConfigMap from the server itself.
        told = {name: list(changes) for name, changes in informer.told.items() if name != "kube-root-ca.crt"}
    for name in sorted(set(expected) | set(told)):
        wanted, got = expected.get(name, []), told.get(name, [])
        versions = [version for _, version in got]
        if any(later <= earlier for earlier, later in zip(versions, versions[1:])):
            return f"versions of {name} do not grow: {versions}"
        # The version of a deletion is only known to those who watch.
        got = [(kind, None if kind == "DELETED" else version) for kind, version in got]
        if wanted != got:
            where = next((i for i, (a, b) in enumerate(zip(wanted, got)) if a != b), min(len(wanted), len(got)))
            return f"{name} differs at change {where}: written {wanted[where:where + 3]}, told {got[where:where + 3]}"
    return None


def check(informer, writers):
    deadline = time.monotonic() + PATIENCE
    # Only the last events may still be on their way; what is wrong stays wrong.
    while (problem := informer.failure or compare(informer, writers)) and time.monotonic() < deadline and not informer.failure:
        time.sleep(0.1)
    if problem:
        raise Failure(f"{informer.source.name}: {problem}")
    # Even when nothing happens, a watch that ends tells how far it got.
    while not informer.bookmarks and time.monotonic() < deadline:
        time.sleep(0.1)
    if not informer.bookmarks:
        raise Failure(f"{informer.source.name}: asked for bookmarks and got none")
    if informer.relists != 1:
        raise Failure(f"{informer.source.name}: had to list {informer.relists} times; history must survive a restart")
    items, _ = informer.source.list()
    fresh = {item["metadata"]["name"]: item for item in items}
    for name in sorted(set(fresh) | set(informer.cache)):
        if fresh.get(name) != informer.cache.get(name):
            difference = f"{informer.cache.get(name)} instead of {fresh.get(name)}"
            raise Failure(f"{informer.source.name}: the cache has {difference}")


def check_recovery_from_410(source):
    """A watch of history that is gone, or that never was, makes an informer list again."""

    class Expired:
        name, list = source.name, staticmethod(source.list)
        calls = 0

        def watch(self, version):
            self.calls += 1
            if self.calls == 1:
                raise ApiException(status=410, reason="Expired")
            return source.watch(version)

    informer = Informer(Expired())
    informer.step()
    if informer.version is not None:
        raise Failure("410 must make the informer forget its version")
    informer.step()
    if informer.relists != 2 or {name for name, _ in informer.told.items()} != set(informer.cache):
        raise Failure("after 410 the informer must list again, and tell nothing twice")


def connect(kubeconfig):
    settings = client.Configuration()
    config.load_kube_config(kubeconfig, client_configuration=settings)
    # A write that the client repeats by itself would hide what became of the first one.
    settings.retries = False
    return client.ApiClient(settings)


def restarts(server, writers, progress, total):
    """Restarts at a quarter, half and three quarters of the writes."""
    steps = [("down and up", server.restart), ("kill -9 and up", server.kill), ("down and up", server.restart)] if server else []
    done = 0
    for number, (name, step) in enumerate(steps, start=1):
        while done < total * number // (len(steps) + 1):
            if not progress.acquire(timeout=PATIENCE):
                problems = [repr(writer.failure) for writer in writers if writer.failure]
                raise Failure(f"writers stopped after {done} of {total} writes: {'; '.join(problems)}")
            done += 1
        print(f"after {done} writes: {name}", flush=True)
        step()


def run(arguments, api_client, namespace):
    sources = [ConfigMaps(api_client, namespace), CustomInstances(api_client, namespace), DynamicInstances(api_client, namespace)]
    server = Server(arguments.ferrovirt, arguments.state) if arguments.ferrovirt else None
    progress = threading.Semaphore(0)
    informers = [Informer(source) for source in sources]
    per_writer = arguments.writes // (2 * len(sources))
    writers = [Writer(number, sources[number % len(sources)], per_writer, arguments.seed, progress)
               for number in range(2 * len(sources))]
    for thread in informers + writers:
        thread.start()
    restarts(server, writers, progress, per_writer * len(writers))
    for writer in writers:
        writer.join(timeout=5 * PATIENCE)
        if writer.failure or writer.is_alive():
            raise Failure(f"a writer of {writer.source.name} failed: {writer.failure!r}")
    for informer in informers:
        of_same_kind = [writer for writer in writers if isinstance(writer.source, ConfigMaps) == isinstance(informer.source, ConfigMaps)]
        check(informer, of_same_kind)
        informer.stopping = True
        changes = sum(map(len, informer.told.values()))
        print(f"{informer.source.name}: {changes} changes, each once and in order; {informer.resumes} watches, "
              f"{informer.cuts} cut off, {informer.bookmarks} bookmarks", flush=True)
    check_recovery_from_410(sources[0])
    unsure, happened = sum(w.unsure for w in writers), sum(w.unsure_happened for w in writers)
    print(f"{sum(len(c) for w in writers for c in w.done.values())} writes; {unsure} without an answer, of which {happened} were done", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--ferrovirt", help="the program; without it the server is not restarted")
    parser.add_argument("--state", help="the server's state directory")
    parser.add_argument("--writes", type=int, default=900)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    api_client = connect(arguments.kubeconfig)
    core, namespace = client.CoreV1Api(api_client), f"foreign-{random.randrange(2**32):08x}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    try:
        run(arguments, api_client, namespace)
    except Failure as failure:
        sys.exit(f"FAILED: {failure}")
    finally:
        with contextlib.suppress(*CUT_OFF):
            core.delete_namespace(namespace)


if __name__ == "__main__":
    main()
