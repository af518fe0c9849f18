"""An HTTP or HTTPS server in this process that records what hooks post, and answers as the test says."""
import http.server
import json
import ssl
import threading


class HookServer:
    """answer(request number, text) returns (status, headers, body), or None to send no answer at all. The default is 200."""

    def __init__(self, port, answer=None, tls=None):
        self.port, self.answer, self.lock = port, answer, threading.Lock()
        self.posts = []  # (path, headers, text), in the order of their arrival
        self.answered = []  # the texts that got an answer
        self.stopped = threading.Event()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                with owner.lock:
                    owner.posts.append((self.path, dict(self.headers), text))
                    number = len(owner.posts)
                reply = owner.answer(number, text) if owner.answer else (200, {}, "ok")
                if reply is None:
                    owner.stopped.wait()
                    return
                with owner.lock:
                    owner.answered.append(text)
                status, headers, body = reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, address):
                pass  # the coordinator was killed, or refused our certificate

        self.server = Server(("127.0.0.1", port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def messages(self, answered=False):
        with self.lock:
            return [json.loads(text) for text in (self.answered if answered else [post[2] for post in self.posts])]

    def close(self):
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()
