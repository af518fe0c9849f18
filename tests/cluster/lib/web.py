"""A client of the HTTP interface (docs/reference/http.md): requests, and the events of /api/watch."""
import http.client
import json
import socket
import ssl
import threading


class Web:
    def __init__(self, url):
        address, self.key = url.strip().split("/#k=")
        self.host, port = address.removeprefix("http://").split(":")
        self.port = int(port)

    def headers(self, change=False):
        return {"X-DDP-Key": self.key, **({"X-DDP": "1"} if change else {})}

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=30)

    def request(self, method, path, headers=None, body=None):
        """Returns (status, body, headers). headers: exactly these, None: those that are needed."""
        connection = self.connect()
        try:
            connection.request(method, path, body=body,
                               headers=self.headers(method == "POST") if headers is None else headers)
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.headers
        finally:
            connection.close()

    def get(self, path):
        status, body, _ = self.request("GET", path)
        assert status == 200, (path, status, body)
        return body.decode()

    def post(self, path, body=None, status=200):
        got, text, _ = self.request("POST", path, body=body)
        assert got == status, (path, got, text)
        return json.loads(text)

    def open_watch(self, query="", last=None):
        """A socket that has sent the request and read nothing."""
        headers = {"Host": "%s:%d" % (self.host, self.port), **self.headers(), **({"Last-Event-ID": str(last)} if last else {})}
        s = self.open_socket()
        s.sendall(("GET /api/watch%s HTTP/1.1\r\n%s\r\n" % (query, "".join("%s: %s\r\n" % h for h in headers.items()))).encode())
        return s

    def open_socket(self):
        return socket.create_connection((self.host, self.port), timeout=30)


class Site(Web):
    """The coordinator's own page, for a browser that logs in. ca: a file; the page uses TLS."""

    def __init__(self, port, ca=None):
        self.host, self.port, self.cookie = "localhost" if ca else "127.0.0.1", port, None
        self.tls = ssl.create_default_context(cafile=ca) if ca else None

    def headers(self, change=False):
        return {**({"Cookie": self.cookie} if self.cookie else {}), **({"X-DDP": "1"} if change else {})}

    def connect(self):
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=30, context=self.tls)
        return super().connect()

    def open_socket(self):
        plain = super().open_socket()
        return self.tls.wrap_socket(plain, server_hostname=self.host) if self.tls else plain

    def login(self, token, status=200):
        """Returns the answer, and the attributes of the cookie."""
        got, text, headers = self.request("POST", "/api/login", body=json.dumps({"token": token}).encode())
        assert got == status, (got, text)
        cookie = headers["Set-Cookie"] or ""
        if status == 200:
            self.cookie = cookie.split(";")[0]
        return json.loads(text), [word.strip() for word in cookie.split(";")[1:]]


class Watcher(threading.Thread):
    """Reads a watch: events is a list of (id, name, data)."""

    def __init__(self, web, query="", last=None):
        super().__init__(daemon=True)
        self.events, self.status = [], None
        self.socket = web.open_watch(query, last)
        self.start()

    def run(self):
        try:
            reply = http.client.HTTPResponse(self.socket)
            reply.begin()
            self.status = reply.status
            fields = {}
            while True:
                line = reply.readline()
                if not line:
                    return
                line = line.decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if line.startswith(":"):
                    continue  # a comment, with a blank line behind it
                if line:
                    fields[name] = value
                elif fields and not line:
                    self.events.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
                    fields = {}
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # closed by the test, or by the server's end

    def find(self, name, test=lambda data: True):
        return next((e for e in list(self.events) if e[1] == name and test(e[2])), None)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.join(10)
        self.socket.close()
