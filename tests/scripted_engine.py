"""An HTTP server on the loopback that answers as an engine does: it plays recorded streams, and
breaks where it is told to.
"""

from __future__ import annotations

import json
import lzma
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CAPTURES = json.loads(
    lzma.decompress((Path(__file__).parent / "data" / "engine_captures.json.xz").read_bytes())
)
PLAIN_METRICS = {"vllm": "vllm:num_requests_running 0\n"}
METRICS = {
    "vllm": 'vllm:num_requests_running{{model="m"}} {running}\n'
    "vllm:spec_decode_num_drafts_total {drafts}\n"
    "vllm:spec_decode_num_draft_tokens_total {drafted}\n"
    "vllm:spec_decode_num_accepted_tokens_total {accepted}\n"
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {first}\n',
}


def captured(name):
    """The lines of a recorded stream."""
    return [line for _, line in CAPTURES[name]["events"]]


def plain_vllm():
    """A recorded stream, of which no draft was accepted, as a server without speculation sends
    it.
    """
    lines = []
    for line in captured("vllm_0.32.0_dflash_random_chat"):
        data = json.loads(line[6:]) if line.startswith("data: {") else None
        if data and data.pop("metrics", None):
            line = "data: " + json.dumps(data)
        lines.append(line)
    return lines


class ScriptedEngine:
    """Args:
    kind: of the engine. lines: what a streamed answer sends, and in its place may stand a
    number, seconds to wait, "cut", which closes the connection in the middle of a chunk, or
    "hold", which sends nothing more until the client has gone.
    """

    def __init__(self, kind, lines=(), speculates=True, status=200, headers=(), key="", model="m"):
        self.kind, self.lines, self.speculates = kind, list(lines), speculates
        self.status, self.headers, self.key, self.model = status, dict(headers), key, model
        self.bodies, self.metrics_asked = [], 0
        self.gone, self.held = threading.Event(), threading.Event()
        self.counters = [dict(running=0, drafts=0, drafted=0, accepted=0, first=0)]
        self.seen = []  # (port of the client, headers) of each request
        self.instead = {}  # an answer by its number -> its lines, or a refusal
        self.replies = {}  # path -> (status, JSON or text), or “hold”, instead of its own
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer comes 40 ms late

            def log_message(self, *args):
                pass

            def do_GET(self):
                engine.answer(self, None)

            def do_POST(self):
                length = int(self.headers.get("Content-Length") or 0)
                engine.answer(self, json.loads(self.rfile.read(length)))

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, body):
        path = handler.path
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.seen.append((handler.client_address[1], headers))
        if self.key and handler.headers.get("Authorization") != f"Bearer {self.key}":
            self.send(handler, 401, {"error": "Unauthorized"})
        elif self.replies.get(path) == "hold":
            self.hold(handler)
        elif path in self.replies:
            self.send(handler, *self.replies[path])
        elif path in ("/completion", "/v1/chat/completions", "/generate"):
            self.bodies.append(body)
            self.stream(handler)
        else:
            self.send(handler, *self.about(path))

    def about(self, path):
        """Status and content of the pages that say what the engine is."""
        if path == "/v1/models":
            return 200, {"data": [{"id": self.model}]}
        only = {"/slots": "llama.cpp", "/props": "llama.cpp", "/server_info": "sglang"}
        if only.get(path, self.kind) != self.kind:
            return 404, {"error": {"message": "no such page"}}
        if path == "/slots":
            return 200, [{"id": 0, "speculative": self.speculates}]
        if path == "/props":
            return 200, {"build_info": "b11549-abcdef0"}
        if path == "/apply-template":
            return 200, {"prompt": "<user>hi"}
        if path == "/version" and self.kind in ("vllm", "trtllm"):
            return 200, {"version": "0.32.0"}
        if path == "/tokenize":
            return 200, {"tokens": [1, 2, 3]}
        if path == "/server_info":
            algorithm = "DFLASH" if self.speculates else None
            return 200, {"version": "0.5.23", "speculative_algorithm": algorithm}
        if path == "/metrics" and self.kind == "vllm":
            if not self.speculates:
                return 200, PLAIN_METRICS["vllm"]
            now = self.counters[min(self.metrics_asked, len(self.counters) - 1)]
            self.metrics_asked += 1
            return 200, METRICS["vllm"].format(**now)
        return 404, {"error": {"message": "no such page"}}

    def send(self, handler, status, content):
        data = content if isinstance(content, str) else json.dumps(content)
        handler.send_response(status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data.encode())))
        handler.end_headers()
        handler.wfile.write(data.encode())

    def stream(self, handler):
        if self.status != 200:
            self.send(handler, self.status, "\n".join(self.lines))
            return
        lines = self.instead.get(len(self.bodies), self.lines)
        if isinstance(lines, dict):
            self.send(handler, 400, lines)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for line in lines:
                if line == "cut":
                    handler.wfile.write(b"ff\r\nda")
                    handler.wfile.flush()
                    handler.close_connection = True
                    handler.connection.shutdown(2)
                    return
                if line == "hold":
                    self.hold(handler)
                    return
                if isinstance(line, (int, float)):
                    time.sleep(line)
                    continue
                data = f"{line}\n\n".encode()
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                handler.wfile.flush()
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.gone.set()
        handler.close_connection = True

    def hold(self, handler):
        """Until the client closes its side, which a read then tells."""
        self.held.set()
        handler.connection.settimeout(20)
        try:
            handler.connection.recv(1)
        except TimeoutError:
            return
        except OSError:
            pass
        self.gone.set()
