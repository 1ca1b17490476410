"""The host of `llamacpp`, made to crash for real when a prompt says so, and to print in between."""

import ctypes
import runpy
import sys
from pathlib import Path

import xllamacpp

libc = ctypes.CDLL(None)


class Server:
    def __init__(self, params):
        libc.puts(b"noise of a library")
        libc.fflush(None)
        self._server = Server.real(params)

    def handle_completions(self, prompt):
        return self._server.handle_completions(prompt)

    def handle_chat_completions(self, body, take):
        print("noise of a chat", flush=True)
        if b"SEGFAULT" in body:
            libc.fputs(b"0.00.000.001 E words before the end\n", ctypes.c_void_p.in_dll(libc, "stderr"))
            ctypes.string_at(0)
        if b"SIMPLY FAIL" in body:
            raise ValueError("no such role")
        self._server.handle_chat_completions(body, take)


Server.real, xllamacpp.Server = xllamacpp.Server, Server
host = Path(__file__).resolve().parents[2] / "transforms" / "engines" / "_llamacpp_host.py"
sys.argv = [str(host)]
runpy.run_path(str(host), run_name="__main__")
