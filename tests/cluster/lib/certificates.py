"""Makes certificates for tests with the openssl program."""
import os
import shutil
import subprocess
import sys


def need_openssl():
    if shutil.which("openssl") is None:
        print("skipped: openssl is not installed")
        sys.exit(77)


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_ca(cwd, ca):
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=" + ca, "-keyout",
            ca + ".key", "-out", ca + ".pem", cwd=cwd)


def make_certificate(cwd, ca, name):
    with open(os.path.join(cwd, name + ".ext"), "w") as f:
        f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out",
            name + ".csr", cwd=cwd)
    openssl("x509", "-req", "-in", name + ".csr", "-CA", ca + ".pem", "-CAkey", ca + ".key", "-CAcreateserial", "-days",
            "2", "-extfile", name + ".ext", "-out", name + ".pem", cwd=cwd)
