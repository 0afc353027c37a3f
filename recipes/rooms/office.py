"""The office: its rooms, what is booked on a day, what a request asks for, and which room is right."""

import re
from dataclasses import dataclass
from functools import lru_cache
from random import Random

OPENS, CLOSES = 8 * 60, 19 * 60
"""Minutes since midnight."""
EQUIPMENT = ("projector", "whiteboard", "video", "phone")
NONE = "none"


@dataclass(frozen=True, slots=True)
class Room:
    """A room of the office."""

    name: str
    seats: int
    equipment: frozenset[str]
    step_free: bool


ROOMS = (
    Room("Ash", 12, frozenset({"projector", "whiteboard", "video"}), step_free=True),
    Room("Birch", 8, frozenset({"whiteboard", "phone"}), step_free=False),
    Room("Cedar", 16, frozenset({"projector", "video", "phone"}), step_free=True),
    Room("Elm", 6, frozenset({"projector", "whiteboard"}), step_free=False),
    Room("Fir", 4, frozenset({"phone"}), step_free=True),
    Room("Hazel", 10, frozenset({"video", "phone", "whiteboard"}), step_free=True),
    Room("Juniper", 8, frozenset({"projector", "video"}), step_free=True),
    Room("Larch", 4, frozenset({"whiteboard", "video"}), step_free=False),
    Room("Maple", 20, frozenset(EQUIPMENT), step_free=False),
    Room("Oak", 6, frozenset({"video", "phone", "projector"}), step_free=True),
    Room("Pine", 12, frozenset({"phone", "whiteboard", "projector"}), step_free=False),
    Room("Rowan", 5, frozenset({"projector", "whiteboard", "phone"}), step_free=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody wants to book. Times are minutes since midnight."""

    date: str
    start: int
    minutes: int
    people: int
    needs: tuple[str, ...]
    step_free: bool

    def __str__(self) -> str:
        needs = f" Needs: {', '.join(self.needs)}." if self.needs else ""
        access = " One of us uses a wheelchair." if self.step_free else ""
        return (
            f"A meeting of {self.people} people on {self.date} at {clock(self.start)}"
            f" for {self.minutes} minutes.{needs}{access}"
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """A room as the tool lists it, with its booked periods of the day."""

    room: Room
    booked: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        room = self.room
        booked = " ".join(f"{clock(begin)}-{clock(end)}" for begin, end in self.booked) or "nothing"
        return (
            f"{room.name}: {room.seats} seats; {', '.join(sorted(room.equipment))};"
            f" {'step-free' if room.step_free else 'stairs'}; booked {booked}"
        )

    def is_free(self, start: int, end: int) -> bool:
        """Whether nothing is booked in the period."""
        return all(end <= begin or start >= ending for begin, ending in self.booked)


def clock(minutes: int) -> str:
    """Return minutes since midnight as a time of day."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def minutes_of(text: str) -> int:
    """Return a time of day as minutes since midnight."""
    hours, minutes = text.split(":")
    return 60 * int(hours) + int(minutes)


@lru_cache(maxsize=512)
def day(date: str) -> tuple[Listed, ...]:
    """Return all rooms with what is booked on that day: the same on every machine."""
    rng = Random(f"office {date}")
    listed: list[Listed] = []
    for room in ROOMS:
        booked: list[tuple[int, int]] = []
        begin = OPENS + 30 * rng.randrange(5)
        while begin < CLOSES - 30:
            end = min(begin + 30 * rng.randrange(1, 5), CLOSES)
            booked.append((begin, end))
            begin = end + 30 * rng.randrange(1, 7)
        listed.append(Listed(room, tuple(booked)))
    return tuple(listed)


def list_rooms(date: str) -> str:
    """The agent's tool: the rooms of the office, a line each, with what is booked on that day."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        return f"error: {date!r} is no date like 2026-03-02"
    return "\n".join(map(str, day(date)))


def fits(listed: Listed, request: Request) -> bool:
    """Whether the room has the seats, the equipment, the access and the time."""
    room = listed.room
    return (
        room.seats >= request.people
        and room.equipment.issuperset(request.needs)
        and (room.step_free or not request.step_free)
        and listed.is_free(request.start, request.start + request.minutes)
    )


def right_room(request: Request) -> str:
    """Return the smallest room that fits, of equals the first by name; ``none`` where no room does."""
    fitting = [listed.room for listed in day(request.date) if fits(listed, request)]
    return min(fitting, key=lambda room: (room.seats, room.name)).name if fitting else NONE


_REQUEST = re.compile(
    r"A meeting of (\d+) people on (\d{4}-\d{2}-\d{2}) at (\d{2}:\d{2})\s+for (\d+) minutes\."
    r"(?: Needs: ([a-z, ]+)\.)?( One of us uses a wheelchair\.)?"
)
_LISTED = re.compile(
    r"^(?:tool: )?(\w+): (\d+) seats; ([a-z, ]+); (step-free|stairs); booked ([\d: -]+|nothing)$",
    re.MULTILINE,
)


def requests_in(text: str) -> list[tuple[int, int, Request]]:
    """Find requests in a text, each with where it begins and ends."""
    return [(found.start(), found.end(), _request(found)) for found in _REQUEST.finditer(text)]


def rooms_in(text: str) -> list[Listed]:
    """Find the tool's lines in a text."""
    return [
        Listed(
            Room(name, int(seats), frozenset(equipment.split(", ")), step_free=access == "step-free"),
            ()
            if booked == "nothing"
            else tuple(
                (minutes_of(period.split("-")[0]), minutes_of(period.split("-")[1]))
                for period in booked.split()
            ),
        )
        for name, seats, equipment, access, booked in _LISTED.findall(text)
    ]


def _request(found: re.Match[str]) -> Request:
    people, date, start, minutes, needs, wheelchair = found.groups()
    return Request(
        date=date,
        start=minutes_of(start),
        minutes=int(minutes),
        people=int(people),
        needs=tuple(needs.split(", ")) if needs else (),
        step_free=wheelchair is not None,
    )
