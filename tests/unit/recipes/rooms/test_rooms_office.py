"""The office: rooms, days, requests, and which room is right."""

from __future__ import annotations

import pytest
from rooms_recipe.data import requests
from rooms_recipe.office import (
    NONE,
    Listed,
    Request,
    Room,
    clock,
    day,
    fits,
    list_rooms,
    minutes_of,
    requests_in,
    right_room,
    rooms_in,
)

REQUEST = Request(date="2026-03-02", start=600, minutes=60, people=6, needs=("projector",), step_free=True)


def test_a_request_says_all_and_is_found_in_a_text() -> None:
    assert str(REQUEST) == (
        "A meeting of 6 people on 2026-03-02 at 10:00 for 60 minutes. Needs: projector."
        " One of us uses a wheelchair."
    )
    plain = Request(date="2026-03-02", start=630, minutes=90, people=2, needs=(), step_free=False)
    found = requests_in(f"Please: {REQUEST}\nand then\n{plain} Thanks.")
    assert [request for _, _, request in found] == [REQUEST, plain]


def test_a_day_is_the_same_everywhere_and_is_read_back_from_the_tools_text() -> None:
    text = list_rooms("2026-03-02")
    assert rooms_in(text) == list(day("2026-03-02"))
    assert rooms_in(f"tool: {text}") == list(day("2026-03-02"))
    assert list_rooms("2026-03-02") == text != list_rooms("2026-03-03")
    assert list_rooms("tomorrow") == "error: 'tomorrow' is no date like 2026-03-02"


def test_a_room_fits_by_seats_equipment_access_and_time() -> None:
    room = Room("Oak", 6, frozenset({"projector", "phone"}), step_free=True)
    assert fits(Listed(room, ((540, 600), (660, 700))), REQUEST)
    assert not fits(Listed(room, ((540, 630),)), REQUEST)
    assert not fits(Listed(room, ((630, 700),)), REQUEST)
    assert not fits(Listed(Room("a", 5, room.equipment, step_free=True), ()), REQUEST)
    assert not fits(Listed(Room("a", 6, frozenset({"phone"}), step_free=True), ()), REQUEST)
    assert not fits(Listed(Room("a", 6, room.equipment, step_free=False), ()), REQUEST)


def test_the_right_room_is_the_smallest_that_fits() -> None:
    for task in requests("test", limit=40):
        ((_, _, request),) = requests_in(task["request"])
        fitting = [listed.room for listed in day(request.date) if fits(listed, request)]
        smallest = sorted((room.seats, room.name) for room in fitting)
        assert task["answer"] == right_room(request) == (smallest[0][1] if smallest else NONE)


def test_times_are_minutes() -> None:
    assert (clock(605), minutes_of("10:05")) == ("10:05", 605)


def test_splits_share_no_day_and_few_have_no_room() -> None:
    dates = {}
    for split in ("train", "val", "test"):
        tasks = requests(split)  # type: ignore[arg-type]
        assert sum(task["answer"] == NONE for task in tasks) <= 0.2 * len(tasks)
        dates[split] = {requests_in(task["request"])[0][2].date for task in tasks}
    assert not dates["train"] & dates["val"]
    assert not dates["train"] & dates["test"]
    assert not dates["val"] & dates["test"]


def test_tasks_follow_seed_and_limit() -> None:
    assert requests("train", limit=5) == requests("train", limit=5)
    assert requests("train", seed=1, limit=5) != requests("train", limit=5)
    with pytest.raises(ValueError, match="no split 'dev'"):
        requests("dev")  # type: ignore[arg-type]
