"""Raw bytes that a client without a token can send to the coordinator's port: silent connections, connections that only say that they
speak HTTP/2, and streams that are opened and reset at once."""
import select
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING = 0, 1, 2, 3, 4, 6


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(index, value):
    """Encodes a header whose name is in HPACK's static table and whose value is not stored."""
    return bytes([index, len(value)]) + value


def request(path):
    """Encodes :method POST, :scheme http, and the other headers that gRPC requires."""
    return (b"\x83\x86" + text(4, path) + text(1, b"x") + b"\x0f\x10" + bytes([16]) + b"application/grpc" +
            b"\x00\x02te\x08trailers")


def hello():
    return PREFACE + frame(SETTINGS)


def resets(first, count, path=b"/ddp.v1.Cluster/ListNodes"):
    """Returns frames that open `count` streams, from `first` (odd) on, and reset each at once."""
    head, cancel = request(path), struct.pack(">I", 8)
    return b"".join(frame(HEADERS, 4, stream, head) + frame(RST_STREAM, 0, stream, cancel)
                    for stream in range(first, first + 2 * count, 2))


def dial(address, data=b""):
    """Opens a connection that never blocks. It sends as much of the data as fits at once."""
    s = socket.create_connection(address, timeout=10)
    s.setblocking(False)
    try:
        if data:
            s.send(data)
    except OSError:
        pass  # the connection was dropped already
    return s


def closed(s):
    try:
        while s.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def push(address, data, patience):
    """Sends until the other side closes or takes nothing for `patience` seconds. Returns (bytes taken, whether it closed)."""
    sent, view = 0, memoryview(data)
    with socket.create_connection(address, timeout=patience) as s:
        s.setblocking(False)
        while True:
            readable, writable, _ = select.select([s], [s] if sent < len(data) else [], [], patience)
            try:
                if readable and not s.recv(1 << 16):
                    return sent, True
                if writable:
                    sent += s.send(view[sent:sent + (1 << 18)])
            except BlockingIOError:
                continue
            except OSError:
                return sent, True
            if not readable and not writable:
                return sent, False
