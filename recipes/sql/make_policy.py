"""Make the starter policy from nothing: a small Llama warmed up on imperfect demonstrations, and not for long.

Run from the repository's root: `python -m recipes.sql.make_policy`. One CPU thread, no download; see
README.md for what the policy has and has not seen.
"""

import argparse
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .data import part
from .demonstrations import Message, Noise, demonstrations
from .schemas import HELD_OUT_SCHEMA
from .tokenizer import build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

Example = tuple[list[int], list[bool]]  # token ids of a conversation, and which of them the policy has to say


def is_held_out(schema: str, sql: str) -> bool:
    """True for every query that validation or test questions may have as gold, under any seed."""
    return schema == HELD_OUT_SCHEMA.name or part(schema, sql) != "train"


def make_tokenizer(conversations: Sequence[list[Message]], vocab_size: int) -> "PreTrainedTokenizerFast":
    """A tokenizer for these conversations that knows every number of two digits."""
    texts = [message["content"] for conversation in conversations for message in conversation]
    texts += ["system\nuser\nassistant\n"] * 50
    texts += [f"{number:02}" for number in range(100)] * 20 + [str(number) for number in range(10)] * 20
    return build_tokenizer(texts, vocab_size)


def make_model(tokenizer: "PreTrainedTokenizerFast", *, layers: int, hidden: int) -> "LlamaForCausalLM":
    """A Llama with heads of 32, randomly initialised; embeddings are tied until `move_scale_to_head`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=hidden * 3,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 32,
            num_key_value_heads=hidden // 32,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def example_from_conversation(conversation: list[Message], tokenizer: "PreTrainedTokenizerFast") -> Example:
    """The conversation as the chat template writes it; what the policy says ends with the end token."""
    ids: list[int] = []
    spoken: list[bool] = []
    for message in conversation:
        head = tokenizer.encode(f"<|im_start|>{message['role']}\n")
        body = [*tokenizer.encode(message["content"]), tokenizer.eos_token_id]
        tail = tokenizer.encode("\n")
        ids += head + body + tail
        spoken += [False] * len(head) + [message["role"] == "assistant"] * len(body) + [False] * len(tail)
    return ids, spoken


def _batches(examples: list[Example], size: int, rng: random.Random) -> list[list[Example]]:
    """Batches of examples of similar length, in random order."""
    order = sorted(examples, key=lambda example: (len(example[0]) // 8, rng.random()))
    batches = [order[start : start + size] for start in range(0, len(order) - size + 1, size)]
    rng.shuffle(batches)
    return batches


def _loss(model: "LlamaForCausalLM", batch: list[Example], context_weight: float) -> "torch.Tensor":
    """Weighted cross-entropy: 1 for what the policy says, `context_weight` for the rest of the conversation.

    Predicting the context, in which names recur, is what makes copying emerge early. Padding is on the right, where
    a causal model does not see it.
    """
    import torch

    length = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in batch])
    weights = torch.tensor(
        [[1.0 if s else context_weight for s in said] + [0.0] * (length - len(said)) for _, said in batch]
    )
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weights = weights[:, 1:].flatten()
    return (losses * weights).sum() / weights.sum()


def warm_up(
    model: "LlamaForCausalLM",
    examples: list[Example],
    *,
    steps: int,
    schedule_steps: int,
    batch_size: int,
    peak_lr: float,
    rng: random.Random,
    context_weight: float = 0.3,
) -> None:
    """The first `steps` of AdamW with a linear start and a cosine that would end after `schedule_steps`."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, betas=(0.9, 0.95), weight_decay=0.01)
    batches: list[list[Example]] = []
    started = time.monotonic()
    model.train()
    for step in range(steps):
        batches = batches or _batches(examples, batch_size, rng)
        rate = min((step + 1) / 100, 0.5 * (1 + math.cos(math.pi * step / schedule_steps)) * 0.95 + 0.05)
        for group in optimizer.param_groups:
            group["lr"] = peak_lr * rate
        loss = _loss(model, batches.pop(), context_weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.3f} seconds {time.monotonic() - started:.0f}", flush=True)


def move_scale_to_head(model: "LlamaForCausalLM", factor: float) -> None:
    """Divide the last norm by `factor` and multiply the output matrix by it: the same function, easier to sharpen.

    Adam moves every weight by about the learning rate. With a small last norm such a step changes how sure the policy
    is by a per cent rather than by a few hundredths of one, so RL can sharpen it without disturbing what it knows.
    """
    import torch

    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach() * factor)
    model.model.norm.weight.data /= factor


def save(model: "LlamaForCausalLM", tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    """Write an ordinary Hugging Face folder."""
    model.generation_config.update(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Make and save the policy that the recipe ships."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="default: where the recipes look for it")
    parser.add_argument("--instructed", action="store_true", help="the policy that follows instructions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=900, help="enough to copy names, not to be good")
    parser.add_argument("--schedule-steps", type=int, default=3000)
    parser.add_argument("--demonstrations", type=int, default=60_000)
    parser.add_argument("--wrong-query", type=float, default=Noise().wrong_query)
    parser.add_argument("--training-share", type=float, default=0.35)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--head-factor", type=float, default=60.0)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    out = args.out or Path(__file__).parent / ("instructed_policy" if args.instructed else "policy")

    import torch

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    conversations = list(
        demonstrations(
            args.demonstrations,
            noise=Noise(wrong_query=args.wrong_query),
            rng=rng,
            is_held_out=is_held_out,
            training_share=args.training_share,
            instructed=args.instructed,
        )
    )
    tokenizer = make_tokenizer(conversations[:6000], args.vocab)
    model = make_model(tokenizer, layers=args.layers, hidden=args.hidden)
    examples = [example_from_conversation(conversation, tokenizer) for conversation in conversations]
    warm_up(
        model,
        examples,
        steps=args.steps,
        schedule_steps=args.schedule_steps,
        batch_size=args.batch_size,
        peak_lr=args.lr,
        rng=rng,
    )
    move_scale_to_head(model, args.head_factor)
    save(model, tokenizer, out)


if __name__ == "__main__":
    main()
