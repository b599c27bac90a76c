"""What the API server calls in the smoke test: an aggregated API, and a webhook that refuses what is labelled so.

webhook.py CERTIFICATE KEY PORT
"""

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "smoke.example/v1", "resources": []})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        labels = request["object"]["metadata"].get("labels", {})
        response = {"uid": request["uid"], "allowed": "refuse-me" not in labels, "status": {"message": "it is labelled so"}}
        self.answer({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})


certificate, key, port = sys.argv[1:]
server = ThreadingHTTPServer(("", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
