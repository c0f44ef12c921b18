from __future__ import annotations

import asyncio
import socket

from support.virtual_time import VirtualTime

HOUR_S = 3_600.0


def test_an_hour_of_waiting_passes_at_once_and_timers_keep_their_order() -> None:
    clock, seen = VirtualTime(), list[tuple[int, str]]()

    def note(name: str) -> None:
        seen.append((clock.steady_ns() // 10**9, name))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.call_later(2 * HOUR_S, lambda: ended.set_result(None))
        for hours, name in ((1.0, "second"), (0.5, "first"), (1.5, "third")):
            loop.call_later(hours * HOUR_S, note, name)
        await ended

    clock.run(main())
    assert seen == [(1_800, "first"), (3_600, "second"), (5_400, "third")]
    assert clock.steady_ns() // 10**9 == 7_200


def test_the_clock_stands_still_while_datagrams_go_to_and_fro() -> None:
    clock, count = VirtualTime(), 200

    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        heard = 0

        def answer(end: socket.socket) -> None:
            nonlocal heard
            data, sender = end.recvfrom(64)
            heard += 1
            if heard == count:
                done.set()
            else:
                end.sendto(data, sender)

        for end in ends:
            end.setblocking(False)
            end.bind(("127.0.0.1", 0))
            loop.add_reader(end, answer, end)
        ends[0].sendto(b"to and fro", ends[1].getsockname())
        await done.wait()
        for end in ends:
            loop.remove_reader(end)
            end.close()

    clock.run(main())
    assert clock.steady_ns() == 0
