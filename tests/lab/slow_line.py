"""A slow line to a port of the same host: what either end sends arrives half a round trip later, as fast as it came.

usage: slow_line.py LISTEN PORT ROUND_TRIP_MS; on end of input it prints how many round trips its connections waited for.
"""

from __future__ import annotations

import asyncio
import sys

CHUNK = 65536


class Line:
    """One connection."""

    def __init__(self, round_trip_s: float) -> None:
        self.round_trip_s = round_trip_s
        self.round_trips = 1  # TCP's own handshake
        self._answered = True

    async def between(self, client: asyncio.StreamWriter, heard: asyncio.StreamReader, port: int) -> None:
        """Carry both ways until both ends have closed."""
        await asyncio.sleep(self.round_trip_s)
        answers, server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(self._carry(heard, server, asks=True), self._carry(answers, client, asks=False))

    async def _carry(self, source: asyncio.StreamReader, dest: asyncio.StreamWriter, *, asks: bool) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.create_task(self._arrive(on_the_way, dest))
        data = b"-"
        while data:
            try:
                data = await source.read(CHUNK)
            except ConnectionResetError:
                data = b""
            if asks and data and self._answered:
                self.round_trips += 1
            self._answered = not asks
            on_the_way.put_nowait((asyncio.get_running_loop().time() + self.round_trip_s / 2, data))
        await arriving

    @staticmethod
    async def _arrive(on_the_way: asyncio.Queue[tuple[float, bytes]], dest: asyncio.StreamWriter) -> None:
        data = b"-"
        while data:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            dest.write(data)
        dest.close()


async def main(listen: int, port: int, round_trip_ms: int) -> int:
    """Round trips of all connections."""
    lines: list[Line] = []
    carrying: set[asyncio.Task[None]] = set()

    def accept(heard: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        lines.append(Line(round_trip_ms / 1000))
        carrying.add(asyncio.create_task(lines[-1].between(client, heard, port)))

    async with await asyncio.start_server(accept, "0.0.0.0", listen):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await asyncio.gather(*carrying)
    return sum(line.round_trips for line in lines)


if __name__ == "__main__":
    print(asyncio.run(main(*map(int, sys.argv[1:]))))
