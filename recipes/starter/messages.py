"""Messages to a shop and the queue of each: the tasks of a new recipe, and what its policy is warmed up on."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

QUEUES = ("billing", "shipping", "returns", "technical")
MATTERS = {
    "billing": (
        "I was charged twice for the {item}.",
        "The invoice for the {item} shows the wrong amount.",
        "My card was declined when I paid for the {item}.",
        "The discount for the {item} is missing on my bill.",
        "Please send me a receipt for the {item}.",
        "Why did you take two payments for the {item}?",
    ),
    "shipping": (
        "The {item} has not arrived.",
        "Tracking says that the parcel with the {item} is lost.",
        "Please deliver the {item} to another address.",
        "When will the {item} be delivered?",
        "The courier left the {item} at the wrong door.",
        "The parcel with the {item} is late.",
    ),
    "returns": (
        "I would like to send the {item} back.",
        "The {item} is too small, can I exchange it?",
        "How do I return the {item}?",
        "I no longer need the {item} and it is unopened.",
        "Please send me a return label for the {item}.",
        "Can I swap the {item} for another colour?",
    ),
    "technical": (
        "The {item} does not turn on.",
        "The {item} stopped working after a day.",
        "How do I connect the {item} to the app?",
        "The app crashes when it looks for the {item}.",
        "The {item} shows an error after the update.",
        "The battery of the {item} does not charge.",
    ),
}
MONEY_BACK = ("I want my money back.", "Please refund me.", "I expect a full refund.")
"""The shop's own rule: whoever asks for this goes to `returns`, whatever else the message is about."""
MONEY_BACK_SHARE = 0.3
ITEMS = (
    *(
        "lamp",
        "kettle",
        "speaker",
        "headset",
        "camera",
        "printer",
        "monitor",
        "keyboard",
        "toaster",
        "heater",
    ),
    *("router", "scanner", "drill", "mixer", "watch", "scale", "fan", "clock", "radio", "tablet"),
)
OPENINGS = ("", "Hello. ", "Hi there. ", "Good morning. ", "Sorry to bother you. ")
CLOSINGS = ("", " Thanks.", " Please help.", " This is urgent.", " What can you do?")


@dataclass(frozen=True, slots=True)
class Message:
    """A message, its queue, and the queue of somebody who does not know the rule about money."""

    text: str
    queue: str
    obvious: str


def messages(rng: Random) -> Iterator[Message]:
    """Yield messages without end, every queue's matters equally often."""
    while True:
        obvious = rng.choice(QUEUES)
        matter = rng.choice(MATTERS[obvious]).format(item=rng.choice(ITEMS))
        wants_money = rng.random() < MONEY_BACK_SHARE
        demand = f" {rng.choice(MONEY_BACK)}" if wants_money else ""
        text = f"{rng.choice(OPENINGS)}{matter}{demand}{rng.choice(CLOSINGS)}"
        yield Message(text, "returns" if wants_money else obvious, obvious)


def splits(sizes: dict[str, int], *, seed: int = 0) -> dict[str, list[Message]]:
    """Return the messages of each split; no text occurs twice."""
    source, seen, found = messages(Random(f"starter {seed}")), set[str](), {split: [] for split in sizes}
    for split, size in sizes.items():
        while len(found[split]) < size:
            message = next(source)
            if message.text not in seen:
                seen.add(message.text)
                found[split].append(message)
    return found
