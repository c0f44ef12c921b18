"""The papers' conduct: a publisher floods its own adverts, and its notes start where it stands in the mesh."""

from __future__ import annotations

from random import Random

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.errors import LocalError, MalformedError, StaleError
from veilcast.machine import Address, Entropy, Event, Publication
from veilcast.mesh.adverts import check_advert, make_advert
from veilcast.mesh.anchors import ByPublisher, anchored, table_of_routes
from veilcast.mesh.conduct import Deliver, Post
from veilcast.mesh.config import Config
from veilcast.mesh.content import check_notify, make_notify, note_id, open_notify
from veilcast.mesh.cover import ProbabilisticForwarding
from veilcast.mesh.heartbeat import Heartbeats
from veilcast.mesh.membership import Membership
from veilcast.mesh.overlay import Overlay
from veilcast.mesh.policy import Baseline, Policy
from veilcast.mesh.publishing import Publishing
from veilcast.mesh.replays import notes_seen
from veilcast.mesh.shellgame import ShellGamePolicy
from veilcast.wire.messages import Advert, Message, Notify


class Paper:
    """A `Conduct`. In `paper` a topic's token and keys are the same in every epoch."""

    def __init__(
        self,
        config: Config,
        keyring: Keyring,
        members: Membership,
        beats: Heartbeats,
        rng: Random,
        entropy: Entropy,
        post: Post,
        deliver: Deliver,
    ) -> None:
        self._keyring, self._entropy, self._post, self._deliver = keyring, entropy, post, deliver
        self._config = config
        self.overlay = Overlay(config, members, beats, table_of_routes(config, ByPublisher()))
        self.overlay.policy = _policy(config, self.overlay, rng)
        renew_us = config.defences.anchor_life_us // 2 if config.defences.anchors else None
        self._publishing = Publishing(config.again_periods * config.heartbeat_us, entropy, renew_us)
        self._seen = notes_seen(config)
        self._reading: dict[bytes, TopicKeys] = {}

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        keys = self._keys(topic, now)
        if not self.overlay.originates(keys.token):
            self._start_chain(keys, now)

    def unadvertise(self, topic: str, now: int) -> None:
        token = self._keys(topic, now).token
        self._publishing.stopped(token)
        self.overlay.withdraw(token, now)

    def publish(self, topic: str, publication: Publication, now: int) -> None:
        self.advertise(topic, now)
        keys = self._keys(topic, now)
        content = self._publishing.content(topic, publication)
        self._pass_on(make_notify(keys, content, self._entropy), None, now)

    def read(self, topic: str, now: int) -> int | None:
        keys = self._keys(topic, now)
        self._reading[keys.token] = keys
        self.overlay.read(keys.token, now)
        return now

    def unread(self, topic: str, now: int) -> None:
        token = self._keys(topic, now).token
        self._reading.pop(token, None)
        self.overlay.unread(token, now)

    # --- the network

    def receive(self, message: Message, source: Address, now: int) -> None:
        if not isinstance(message, Notify):
            raise MalformedError("only notes travel outside heartbeats")
        self._pass_on(message, source, now)

    def act(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Advert):
            check_advert(message, self._keyring.root, epoch_of(now, self._keyring.epoch_us))
            self.overlay.routes.admit(message, now)
        self.overlay.act(message, source, now)

    def lost(self, neighbour: Address, now: int) -> None:
        self.overlay.forget(neighbour, now)
        self._publishing.want_all()

    def beat(self, now: int) -> None:
        self.overlay.expire(now)
        self._publishing.want(self.overlay.take_lost())
        for keys in self._publishing.due(now):
            self._start_chain(keys, now)
        self.overlay.policy.beat(now)

    def next_event(self) -> Event | None:
        return None

    def sizes(self) -> dict[str, int]:
        return {"seen": len(self._seen)}

    # --- inside

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
        if (keys := self._reading.get(token)) is not None:
            self._deliver(keys.record.topic, name, open_notify(keys, notify), now)

    def _start_chain(self, keys: TopicKeys, now: int) -> None:
        advert = make_advert(keys, self._entropy)
        if (defences := self._config.defences).anchors:
            advert = anchored(advert, keys, self._config.d_max, now + defences.anchor_life_us)
        self.overlay.originate(advert, now)
        self._publishing.started(keys, now)

    def _keys(self, topic: str, now: int) -> TopicKeys:
        keys = self._keyring.at(epoch_of(now, self._keyring.epoch_us)).topic(topic)
        if keys.record.profile != "paper":
            raise LocalError(f"{topic!r} is a topic of the {keys.record.profile} profile; this node is a paper's")
        return keys


def _policy(config: Config, overlay: Overlay, rng: Random) -> Policy:
    policy: Policy = Baseline(overlay)
    if config.cover.rule != "none":
        policy = ProbabilisticForwarding(config.cover, overlay, rng, config.tokens_max)
    if config.shellgame.start != "never":
        policy = ShellGamePolicy(config, overlay, policy, rng)
    return policy
