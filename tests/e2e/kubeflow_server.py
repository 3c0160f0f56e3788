"""Takes what a TrainJob reports, over TLS: kubeflow_server.py IDENTITY FILE.

IDENTITY has cert.pem and key.pem. Writes "PORT" to FILE.port, then a line of JSON a report to FILE:
its path, its token and its body.
"""

import http.server
import json
import os
import pathlib
import ssl
import sys

identity, file = map(pathlib.Path, sys.argv[1:])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        line = {
            "path": self.path,
            "token": self.headers["Authorization"],
            "body": json.loads(body),
        }
        with file.open("a") as reports:
            reports.write(json.dumps(line) + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
part = file.with_name(file.name + ".part")
part.write_text(f"{server.server_port}")
os.rename(part, file.with_name(file.name + ".port"))
server.serve_forever()
