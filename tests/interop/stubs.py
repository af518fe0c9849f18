"""python3-grpcio's view of the wire: stubs made of proto/*.proto at test time. Exit 77 where the tools are missing."""
import os
import shutil
import subprocess
import sys

SOURCE = os.environ.get("DDP_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("DDP_BUILD", os.path.join(SOURCE, "build"))


def skip(why):
    print("skip: " + why)
    sys.exit(77)


def load(directory):
    """Generates and imports ddp_pb2, ddp_pb2_grpc, health_pb2, health_pb2_grpc; returns the four modules."""
    plugin = shutil.which("grpc_python_plugin")
    if not plugin or not shutil.which("protoc"):
        skip("protoc or grpc_python_plugin is not installed")
    try:
        import grpc  # noqa: F401
    except ImportError:
        skip("python3-grpcio is not installed")
    subprocess.run(["protoc", "-I", os.path.join(SOURCE, "proto"), "--python_out=" + directory,
                    "--grpc_python_out=" + directory, "--plugin=protoc-gen-grpc_python=" + plugin,
                    "ddp.proto", "health.proto"], check=True)
    sys.path.insert(0, directory)
    import ddp_pb2
    import ddp_pb2_grpc
    import health_pb2
    import health_pb2_grpc
    return ddp_pb2, ddp_pb2_grpc, health_pb2, health_pb2_grpc
