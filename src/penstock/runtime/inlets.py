"""The receiving ends of channels: frames are taken, and each channel has one watermark of all its upstream tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds, StepId
from penstock.runtime.exchange import ChannelWriter
from penstock.runtime.frames import Frame, Payload, RowTypes, decode_payload
from penstock.runtime.loops.rounds import Rounds
from penstock.runtime.ordering import END, Merge, ahead_of
from penstock.runtime.ports import Port
from penstock.runtime.spill import FrameBuffer
from penstock.timing.valve import Valve


@dataclass(frozen=True, slots=True)
class Ways:
    """Where a channel's records come from, and where they go: into steps of the stage, and on to later ones."""

    channel: int
    loop: StepId | None
    rounds: Rounds
    buffer: FrameBuffer
    upstreams: int
    rows: RowTypes
    ends: list[Port]
    relays: list[ChannelWriter]

    def on_batch(self, payload: Payload) -> None:
        for end in self.ends:
            end.on_batch(payload)

    def on_frame(self, frame: Frame) -> None:
        payload = decode_payload(frame.data, self.rows)
        if self.loop is None:
            self.on_batch(payload)
        else:
            with self.rounds.turn(self.loop, frame.rounds):
                self.on_batch(payload)

    def relay(self, frame: Frame) -> None:
        for relay in self.relays:
            relay.relay(frame)

    def announce(self, watermark: Milliseconds | None) -> None:
        for end in self.ends:
            end.on_watermark(watermark)
        for relay in self.relays:
            relay.on_watermark(watermark)


class Inlet:
    """The receiving end of a channel: one watermark of all its upstream tasks.

    Law: an upstream whose time has ended holds the others back where it was, until all records have been taken: where its input
    ends in an epoch makes no record late.
    """

    def __init__(self, ways: Ways) -> None:
        channel, buffer = ways.channel, ways.buffer
        self._ways = ways
        self._valve = Valve(ways.upstreams)
        self._pending = buffer.watermarks(channel)
        self._final = {u: trailer.watermarks.get(channel) for u, trailer in buffer.trailers.items()}
        self._reached = {u: trailer.reached.get(channel) for u, trailer in buffer.trailers.items()}
        self._before_end = {u: t.before_end[channel] for u, t in buffer.trailers.items() if channel in t.before_end}
        self._frames = sum(map(len, self._pending.values()))

    def start(self) -> None:
        for upstream in range(self._ways.upstreams):
            self._advance(upstream)
        if self._valve.idle:
            self._ways.announce(None)
        self._end()

    def take(self, frame: Frame) -> None:
        pending = self._pending[frame.upstream]
        pending.popleft()
        self._ways.relay(frame)
        if self._ways.ends:
            self._ways.on_frame(frame)
        self._frames -= 1
        self._advance(frame.upstream)
        self._end()

    def _advance(self, upstream: int) -> None:
        """The upstream is where its next frame says, or, when it has none, where its trailer says."""
        pending = self._pending.get(upstream)
        final = self._before_end[upstream] if upstream in self._before_end else self._final.get(upstream)
        watermark = pending[0] if pending else final
        if self._valve.take(upstream, watermark):
            self._ways.announce(self._valve.watermark)

    def _end(self) -> None:
        """All records have been taken: time may go on to where those that have ended got, and end."""
        if not self._frames:
            rests = [u for u, before in self._before_end.items() if before is None]
            for known in ({u: self._reached.get(u) for u in rests}, dict.fromkeys(rests), self._final):
                for upstream in self._before_end:
                    if upstream in known and self._valve.take(upstream, known[upstream]):
                        self._ways.announce(self._valve.watermark)


class OrderedInlet:
    """The receiving end of a channel whose records have ticks: they are passed on in rounds. See `penstock.runtime.ordering`."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._ahead = ahead_of(ways.channel, ways.buffer.trailers)
        self._merge = Merge()
        self._highest = MIN_WATERMARK
        for end in ways.ends:
            end.look_ahead(self._ahead.limit)

    @property
    def rows(self) -> int:
        """How many records wait."""
        return self._merge.rows

    def take(self, frame: Frame) -> None:
        ways = self._ways
        ways.relay(frame)
        tick = int(frame.watermark)
        if ways.ends:
            tick = self._merge.add((frame.lane, frame.upstream, frame.sequence), decode_payload(frame.data, ways.rows))
        self._highest = max(self._highest, tick)

    def pass_on(self, horizon: Milliseconds) -> None:
        payload = self._merge.release(horizon, self._ahead.limit)
        if payload is not None:
            self._ways.on_batch(payload)

    def reach(self, horizon: Milliseconds) -> None:
        """All records below the horizon have been passed on. Before time ends it gets to the last tick too."""
        ahead = self._ahead
        if horizon != END:
            self._ways.announce(min(horizon, ahead.limit))
            return
        last = max(ahead.last, self._highest) if ahead.ended else ahead.last
        if last > MIN_WATERMARK:
            self._ways.announce(last)
        if ahead.rests:
            self._ways.announce(None)

    def end(self) -> None:
        """All records of all channels have been passed on: time may end."""
        if self._ahead.ended:
            self._ways.announce(MAX_WATERMARK)


def pass_on(inlets: Iterable[OrderedInlet], horizon: Milliseconds) -> None:
    """A round: everything below the horizon, channel by channel. Time moves before the next one, so that what timers emit at a
    tick comes in the round of the tick, and in its place there."""
    for inlet in inlets:
        inlet.pass_on(horizon)
        inlet.reach(horizon)
