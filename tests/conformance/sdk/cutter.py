"""A proxy that can cut its connections, to test that a client comes back."""

import asyncio


class Cutter:
    """Passes bytes between clients and the server, until the cut."""

    def __init__(self, host, port):
        self.upstream = (host, port)
        self.open = set()
        self.tasks = set()
        # Head of each connection's first request.
        self.heads = []

    async def start(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def _accept(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection(*self.upstream)
        both = (writer, far_writer)
        self.open.update(both)
        for source, sink, is_request in ((reader, far_writer, True), (far_reader, writer, False)):
            task = asyncio.create_task(self._pass(source, sink, is_request))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _pass(self, source, sink, is_request):
        try:
            while data := await source.read(65536):
                if is_request:
                    self.heads.append(data.split(b"\r\n\r\n")[0].decode("latin-1"))
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # The cut.
        finally:
            sink.close()
            self.open.discard(sink)

    def cut(self):
        """Resets every connection, as a network that fails does; returns how many."""
        cut = list(self.open)
        self.open.clear()
        for writer in cut:
            writer.transport.abort()
        return len(cut) // 2

    def close(self):
        self.server.close()
        self.cut()
