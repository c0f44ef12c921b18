"""The papers' conduct: a publisher floods its own adverts, and its notes start where it stands in the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

from veilcast.authority.content import check_content, check_notify, make_notify, note_id, open_notify
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.letters import Letter
from veilcast.errors import LocalError, MalformedError, StaleError
from veilcast.machine import Address, Delay, Event, Publication
from veilcast.mesh.adverts import check_advert, make_advert
from veilcast.mesh.anchors import ByPublisher, anchored, table_of_routes
from veilcast.mesh.conduct import Outfit
from veilcast.mesh.config import Config
from veilcast.mesh.cover import ProbabilisticForwarding
from veilcast.mesh.epochs import Epochs
from veilcast.mesh.lingering import Lingering
from veilcast.mesh.overlay import Overlay
from veilcast.mesh.policy import Baseline, Policy
from veilcast.mesh.publishing import Publishing
from veilcast.mesh.replays import notes_seen
from veilcast.mesh.shellgame import ShellGamePolicy
from veilcast.topics import Conjunction, Schema
from veilcast.wire.messages import Advert, Message, Notify


class Paper:
    """A `Conduct`. A topic's token is the same for ever, or changes with the epoch where `epochs` is switched on."""

    def __init__(self, outfit: Outfit) -> None:
        config, keyring, members, beats, rng, entropy, post, deliver, records, *_ = outfit
        self._epochs, self._authority = Epochs(config, keyring), keyring.root
        self._entropy, self._post, self._deliver = entropy, post, deliver
        self._config = config
        self.overlay = Overlay(config, members, beats, table_of_routes(config, ByPublisher()))
        self.overlay.policy = _policy(config, self.overlay, rng)
        renew_us = config.defences.anchor_life_us // 2 if config.defences.anchors else None
        self._publishing = Publishing(config.again_periods * config.heartbeat_us, renew_us)
        self._records = records
        self._lingering = Lingering(config.linger_periods * config.heartbeat_us, records)
        self._seen = notes_seen(config)
        self._reading: dict[bytes, TopicKeys] = {}
        self._wanted: dict[str, Sequence[Conjunction]] = {}
        self._advertised: dict[str, None] = {}

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        for keys in self._epochs.current(topic, now).for_all():
            if not self.overlay.originates(keys.token):
                self._start_chain(keys, now)
        self._advertised[topic] = None
        self._follow(now)

    def unadvertise(self, topic: str, now: int) -> None:
        self._epochs.current(topic, now)
        self._advertised.pop(topic, None)
        for keys in self._publishing.advertised():
            if keys.record.topic == topic:
                self._publishing.stopped(keys.token)
                self.overlay.withdraw(keys.token, now)

    def schema(self, topic: str, now: int) -> Schema:
        return self._epochs.current(topic, now).record.schema

    def draft(self, topic: str, publication: Publication, now: int) -> Letter:
        keys = self._epochs.current(topic, now).for_publication(publication)
        self.advertise(topic, now)
        letter = self._records.draft(topic, keys.cell, publication)
        check_content(keys, letter.content)
        self._lingering.make_room()
        return letter

    def send(self, record: int, letter: Letter, now: int) -> None:
        out = True
        try:
            self._flood(letter, now)
        except LocalError:
            out = False  # The grant has ended; it may be renewed while this waits.
        self._lingering.add(record, letter, now, out=out)

    def recall(self, record: int, letter: Letter, now: int) -> None:
        with suppress(LocalError):
            self.advertise(letter.topic, now)
        self._lingering.add(record, letter, now, out=False)

    def withdraw(self, record: int) -> None:
        self._lingering.forget(record)

    def delay(self, members: int, now: int) -> Delay | None:
        """What has left is kept for a while, and nobody waits for it."""
        stays = [stay for stay in self._lingering.stays if not stay.out]
        if not stays:
            return None
        return Delay("subscribers find the way to a publisher that has just started", stays[-1].until_us)

    def read(self, topic: str, interests: Sequence[Conjunction], now: int) -> int | None:
        self._epochs.current(topic, now).for_interests(interests)
        self._wanted[topic] = interests
        self._follow(now)
        return self.ready_us(topic, now)

    def ready_us(self, topic: str, now: int) -> int | None:
        return now

    def unread(self, topic: str, now: int) -> None:
        self._wanted.pop(topic, None)
        self._follow(now)

    def concerns(self, notify: Notify) -> bool:
        return notify.token in self._reading or self.overlay.originates(notify.token)

    # --- the network

    def receive(self, message: Message, source: Address, now: int) -> None:
        if not isinstance(message, Notify):
            raise MalformedError("only notes travel outside heartbeats")
        self._pass_on(message, source, now)

    def act(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Advert):
            check_advert(message, self._authority, self._epochs.judging(message.certificate, now))
            self.overlay.routes.admit(message, now)
        self.overlay.act(message, source, now)

    def lost(self, neighbour: Address, now: int) -> None:
        self.overlay.forget(neighbour, now)
        self._publishing.want_all()

    def beat(self, now: int) -> None:
        if self._epochs.turned(now):
            self._follow(now)
        self._retire(now)
        self._publishing.want(self.overlay.take_lost())
        for keys in self._publishing.due(now):
            self._start_chain(keys, now)
        for stay in self._lingering.due(now):
            self.send(stay.record, stay.letter, now)
        self.overlay.beat(now)
        self.overlay.policy.beat(now)

    def next_event(self) -> Event | None:
        return None

    def sizes(self) -> dict[str, int]:
        return {"seen": len(self._seen)}

    # --- inside

    def _flood(self, letter: Letter, now: int) -> None:
        """Into its mesh, sealed with the keys of this moment."""
        keys = self._epochs.current(letter.topic, now).for_publication(letter.content.publication)
        self.advertise(letter.topic, now)
        self._pass_on(make_notify(keys, letter.content, self._entropy), None, now)

    def _pass_on(self, notify: Notify, source: Address | None, now: int) -> None:
        """Flood a note inside its mesh (P1 2.2), and read it if we can. Only what is genuine counts as seen."""
        name, token = note_id(notify), notify.token
        if name in self._seen:
            return
        if not self.overlay.takes_part(token):
            raise StaleError("a note of a mesh that we are not in")
        check_notify(notify, self.overlay.publishers(token))
        self._seen.add(name)
        self._post([neighbour for neighbour in self.overlay.adjacent(token) if neighbour != source], notify)
        self.overlay.policy.passed_on(token, now)
        if (keys := self._reading.get(token)) is not None:
            self._deliver(keys.record.topic, lambda: open_notify(keys, notify), now)

    def _follow(self, now: int) -> None:
        """Read and advertise what the owner wants, by the tokens of this moment."""
        wanted = {
            keys.token: keys
            for topic, interests in self._wanted.items()
            for whole in self._epochs.to_read(topic, now)
            for keys in whole.for_interests(interests)
        }
        ended = [token for token in self._reading if token not in wanted]
        fresh = [token for token in wanted if token not in self._reading]
        self._reading = wanted
        for token in fresh:
            self.overlay.read(token, now)
        for token in ended:
            self.overlay.unread(token, now)
        for topic in self._advertised:
            for keys in (part for whole in self._epochs.to_advertise(topic, now) for part in whole.for_all()):
                if not self.overlay.originates(keys.token):
                    with suppress(LocalError):  # No room just now: the owner hears of it when it publishes.
                        self._start_chain(keys, now)

    def _retire(self, now: int) -> None:
        """Let go of chains whose time is over, our own too."""
        over = self._epochs.over_before(now)
        for keys in self._publishing.advertised():
            if keys.certificate is not None and keys.certificate.leaf.last < over:
                self._publishing.stopped(keys.token)
        self.overlay.expire(now, over)

    def _start_chain(self, keys: TopicKeys, now: int) -> None:
        advert = make_advert(keys, self._entropy)
        if (defences := self._config.defences).anchors:
            advert = anchored(advert, keys, self._config.d_max, now + defences.anchor_life_us)
        self.overlay.originate(advert, now)
        self._publishing.started(keys, now)


def _policy(config: Config, overlay: Overlay, rng: Random) -> Policy:
    policy: Policy = Baseline(overlay)
    if config.cover.rule != "none":
        policy = ProbabilisticForwarding(config.cover, overlay, rng, config.tokens_max)
    if config.shellgame.start != "never":
        policy = ShellGamePolicy(config, overlay, policy, rng)
    return policy
