"""A client of a running node publishes, and subscribes to a range. Without a node it tells how to start one."""

import asyncio
import sys

import veilcast
from veilcast import All, Label, Range, UnreachableError, VeilcastError


async def main(config: str) -> None:
    async with veilcast.connect(config) as me:
        status = await me.status()
        print(f"one of {status.members} members, {status.cover_share:.0%} of them cover")
        warm = me.subscribe(All(Label("weather/munich"), Range("temp", 20, 25)))
        await warm.ready(timeout_s=60)
        await me.publish("weather/munich", "sunny", temp=21.5)
        async for note in warm:
            # Acknowledged when the next one is asked for, or at once:
            print(note.publication.body.decode())
            await warm.acknowledge()
            break


def plainly(config: str) -> None:
    """The same without asyncio."""
    with veilcast.connect_sync(config) as me:
        me.publish("weather/munich", "rain", temp=12)


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "node.toml"
    try:
        asyncio.run(main(path))
        plainly(path)
    except UnreachableError as error:
        print(error)
    except VeilcastError as error:
        print(f"{error}; veilcast node run -c {path} starts a node")
