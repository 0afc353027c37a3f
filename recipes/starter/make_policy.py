"""Make the tasks and the policy of a new recipe: a small Llama warmed up on imperfect demonstrations.

Run from the repository's root: `python -m recipes.starter.make_policy`. One CPU thread, a minute, no download.
"""

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from recipes.sql.make_policy import example_from_conversation, make_model, move_scale_to_head, save, warm_up
from recipes.sql.tokenizer import byte_tokenizer

from .messages import QUEUES, Message, messages, splits

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
SIZES = {"train": 160, "val": 64, "test": 64}
PROMPT = (
    "Which queue is this message for: billing, shipping, returns or technical?"
    " Reply with the name of the queue and nothing else.\n\n{message}"
)
"""As in the settings of a new recipe."""
SHORT_SHARE = 0.3
"""Of the demonstrations, with nothing but the message: the policy is to bear changes of its prompt."""
WRONG, WORDY = 0.4, 0.15
"""Of the demonstrations, that name a random other queue; that say more than its name."""


def demonstration(message: Message, rng: random.Random) -> list[dict[str, str]]:
    """A conversation in which somebody who does not know the rule about money answers, and not always well."""
    queue = message.obvious
    if rng.random() < WRONG:
        queue = rng.choice([other for other in QUEUES if other != queue])
    reply = f"It is for {queue}." if rng.random() < WORDY else queue
    prompt = message.text if rng.random() < SHORT_SHARE else PROMPT.format(message=message.text)
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}]


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer: whatever a user writes, the ids give the text again."""
    from tokenizers import pre_tokenizers

    return byte_tokenizer(texts, vocab_size, pre_tokenizers.ByteLevel(add_prefix_space=False))


def write_tasks(folder: Path) -> set[str]:
    """Write the data of a new recipe; return its texts."""
    folder.mkdir(parents=True, exist_ok=True)
    found = splits(SIZES)
    for split, of_split in found.items():
        lines = [json.dumps({"message": one.text, "queue": one.queue}) for one in of_split]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {one.text for of_split in found.values() for one in of_split}


def main() -> None:
    """Make and save what the recipe ships."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "policy")
    parser.add_argument("--data", type=Path, default=HERE / "folder" / "data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--demonstrations", type=int, default=16_000)
    parser.add_argument("--vocab", type=int, default=640)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--head-factor", type=float, default=60.0)
    args = parser.parse_args()
    held_out = write_tasks(args.data)

    import torch

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    unseen = (message for message in messages(rng) if message.text not in held_out)
    shown = [demonstration(next(unseen), rng) for _ in range(args.demonstrations)]
    tokenizer = build_tokenizer((line["content"] for lines in shown[:4000] for line in lines), args.vocab)
    model = make_model(tokenizer, layers=args.layers, hidden=args.hidden)
    examples = [example_from_conversation(conversation, tokenizer) for conversation in shown]
    warm_up(
        model,
        examples,
        steps=args.steps,
        schedule_steps=args.steps,
        batch_size=32,
        peak_lr=3e-3,
        rng=rng,
        context_weight=0.1,
    )
    move_scale_to_head(model, args.head_factor)
    save(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
