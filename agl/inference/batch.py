"""The rows being sampled and their key-value cache: rows join and leave between any two steps (continuous batching).

Every row owns one slot of each layer's buffer, from column 0 on, so rows of different lengths sit side by side and
none is moved when another joins. All tokens of a prompt but the last are prefilled; the last is the first input of
``step``, so that there is one place where tokens are chosen.

Shapes: B rows, S tokens of a prefilled chunk, K columns read, H heads, D head size, V vocabulary.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from agl.errors import ConfigError
from agl.inference.prefixes import Prefix, PrefixCache
from agl.inference.rows import Row
from agl.inference.sampling import SamplingSettings, choose_tokens


@dataclass(slots=True)
class _Window:
    """What the layers write and read during one forward pass; shared by all of them."""

    slots: Tensor
    """Where this pass writes; broadcast against ``columns``."""
    columns: Tensor
    first_read: int = 0
    num_read: int = 0
    """Slots read; 0 reads only what this pass writes, which is prompts from their beginning."""
    width: int = 0
    """Columns read."""
    num_slots: int = 0
    num_columns: int = 0


class _SlotLayer(DynamicLayer):
    """One layer's keys and values, (slots, H, columns, D); grows when the window asks for more."""

    def __init__(self, window: _Window) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.window = window

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write this pass's keys and values; return all that its queries may look at."""
        window = self.window
        self.keys = _grown(self.keys, key_states, window)
        self.values = _grown(self.values, value_states, window)
        self.keys[window.slots, :, window.columns] = key_states.transpose(1, 2)
        self.values[window.slots, :, window.columns] = value_states.transpose(1, 2)
        if window.num_read == 0:
            return key_states, value_states
        slots = slice(window.first_read, window.first_read + window.num_read)
        return self.keys[slots, :, : window.width], self.values[slots, :, : window.width]

    def get_seq_length(self) -> int:
        """Return the number of columns read."""
        return self.window.width

    def grow(self) -> None:
        """Make room for what the window asks for, once there is anything."""
        if self.keys is not None and self.values is not None:
            self.keys = _grown(self.keys, self.keys, self.window)
            self.values = _grown(self.values, self.values, self.window)

    def buffers(self) -> list[Tensor]:
        """Return keys and values, once there are any."""
        return [buffer for buffer in (self.keys, self.values) if buffer is not None]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The tokens of a prompt that are prefilled, and the kept sequence that begins like it."""

    token_ids: tuple[int, ...]
    known: tuple[Prefix, int] | None

    @property
    def num_known(self) -> int:
        return 0 if self.known is None else self.known[1]

    @property
    def num_new(self) -> int:
        return len(self.token_ids) - self.num_known


class DecodingBatch:
    """Samples rows with one model; not thread-safe.

    Args:
        model: a transformers causal language model in eval mode, whose layers attend fully or in sliding windows.
        end_ids: the tokens that end an answer.
        max_rows: sampled at once.
        max_prefill_tokens: of one prefill pass, padding included; bounds its memory.
        max_prefix_bytes: of what is kept of finished rows for prompts that begin alike; 0 keeps nothing.
    """

    def __init__(
        self,
        model: Any,
        *,
        end_ids: frozenset[int],
        max_rows: int,
        max_prefill_tokens: int = 8192,
        max_prefix_bytes: int = 0,
    ) -> None:
        self.model = model
        self.rows: list[Row] = []
        self._end_ids = end_ids
        self._max_rows = max_rows
        self._max_prefill_tokens = max_prefill_tokens
        self._max_prefix_bytes = max_prefix_bytes
        self._prefixes = PrefixCache(max_prefix_bytes)
        self._device: torch.device = model.device
        self._settings: SamplingSettings | None = None
        self._layer_windows = attention_windows(model.config.get_text_config())
        self._num_layers: int = model.config.get_text_config().num_hidden_layers
        # transformers 5.24 has renamed the argument; the old name goes away in 5.40.
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._forward_options: dict[str, Any] = (
            {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        )
        self._shown = torch.zeros((), device=self._device, dtype=model.dtype)
        self._hidden = torch.full((), -torch.inf, device=self._device, dtype=model.dtype)
        self._forget()

    @property
    def num_free(self) -> int:
        """How many more rows fit."""
        return self._max_rows - len(self.rows)

    @torch.inference_mode()
    def clear(self) -> None:
        """Drop all rows and the cache's memory; after a failed pass nothing in it can be trusted."""
        self.rows.clear()
        self._settings = None
        self._forget()

    @torch.inference_mode()
    def admit(self, rows: Sequence[Row]) -> None:
        """Take in new rows and prefill each distinct prompt once; they are sampled from the next step on."""
        rows_by_prompt: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            rows_by_prompt.setdefault(tuple(row.prompt_ids[:-1]), []).append(row)
        prompts = [_Prompt(ids, self._prefixes.find(ids)) for ids in rows_by_prompt]
        prompts.sort(key=lambda prompt: (prompt.num_known > 0, prompt.num_new))
        first = len(self.rows)
        self.rows.extend(rows_by_prompt[prompt.token_ids][0] for prompt in prompts)
        twins: list[tuple[int, int]] = []
        for slot, prompt in enumerate(prompts, first):
            for row in rows_by_prompt[prompt.token_ids][1:]:
                twins.append((slot, len(self.rows)))
                self.rows.append(row)
        self._settings = None
        # Padding may reach beyond the longest prompt.
        self._reserve(max(prompt.num_known for prompt in prompts) + max(prompt.num_new for prompt in prompts))
        num_fresh = sum(prompt.num_known == 0 for prompt in prompts)
        for start, group in ((0, prompts[:num_fresh]), (num_fresh, prompts[num_fresh:])):
            for chunk in prefill_chunks([prompt.num_new for prompt in group], self._max_prefill_tokens):
                self._prefill(group[chunk], first + start + chunk.start)
        self._copy(twins, max(len(prompt.token_ids) for prompt in prompts))

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Sample one token for every row; return the rows that this finished, which have left the batch."""
        rows = self.rows
        positions = [len(row.prompt_ids) + len(row.token_ids) - 1 for row in rows]
        inputs = [row.token_ids[-1] if row.token_ids else row.prompt_ids[-1] for row in rows]
        width = max(positions) + 1
        self._reserve(width)
        ids_B1, positions_B1 = torch.tensor([inputs, positions], device=self._device)[:, :, None]
        window = self._window
        window.slots, window.columns = self._slots[: len(rows), None], positions_B1
        window.first_read, window.num_read, window.width = 0, len(rows), width
        logits_BV = self._forward(ids_B1, positions_B1, width)[:, -1]
        if self._settings is None:
            self._settings = SamplingSettings.of_rows(
                [row.temperature for row in rows],
                [row.top_p for row in rows],
                [row.top_k for row in rows],
                self._device,
            )
        ids_B, logprobs_B = choose_tokens(logits_BV, self._settings, [row.draw() for row in rows])
        finished: list[Row] = []
        ids = cast("list[int]", ids_B.tolist())  # pyright: ignore[reportUnknownMemberType]
        logprobs = cast("list[float]", logprobs_B.tolist())  # pyright: ignore[reportUnknownMemberType]
        for row, token_id, logprob in zip(rows, ids, logprobs, strict=True):
            if math.isnan(logprob):
                row.finish_reason = "error"
                finished.append(row)
                continue
            # In this order: whoever reads along in another thread counts the logprobs, after the finish reason.
            row.token_ids.append(token_id)
            row.logprobs.append(logprob)
            if token_id in self._end_ids or (row.stopped is not None and row.stopped(row.token_ids)):
                row.finish_reason = "stop"
            elif len(row.token_ids) >= row.max_tokens:
                row.finish_reason = "length"
            else:
                continue
            finished.append(row)
        if finished:
            self.drop(finished)
        return finished

    @torch.inference_mode()
    def drop(self, rows: Collection[Row]) -> None:
        """Remove rows, finished or not; the last rows move into the slots that become free."""
        gone = set(rows)
        slots: list[int] = []
        for slot, row in enumerate(self.rows):
            if row not in gone:
                slots.append(slot)
            elif self._max_prefix_bytes and row.finish_reason in ("stop", "length"):
                self._remember(row, slot)
        num_left = len(slots)
        taken = set(slots)
        holes = [slot for slot in range(num_left) if slot not in taken]
        moves = list(zip([slot for slot in slots if slot >= num_left], holes, strict=True))
        if moves:
            self._copy(
                moves,
                max(len(self.rows[slot].prompt_ids) + len(self.rows[slot].token_ids) for slot, _ in moves),
            )
        for source, target in moves:
            self.rows[target] = self.rows[source]
        del self.rows[num_left:]
        self._settings = None
        if any(row.finish_reason == "error" for row in rows):
            self._wipe(num_left)

    def _prefill(self, prompts: Sequence[_Prompt], first_slot: int) -> None:
        """Compute the cache of prompts in neighbouring slots, from where each one's known prefix ends."""
        num_new = max((prompt.num_new for prompt in prompts), default=0)
        for slot, prompt in enumerate(prompts, first_slot):
            self._restore(prompt, slot)
        if num_new == 0:
            return
        # Behind a shorter prompt stands any token: no query of the prompt sees it, and sampling overwrites it.
        padded = [
            prompt.token_ids[prompt.num_known :] + (0,) * (num_new - prompt.num_new) for prompt in prompts
        ]
        ids_BS = torch.tensor(padded, device=self._device)
        window = self._window
        window.slots = self._slots[first_slot : first_slot + len(prompts), None]
        window.columns = self._columns[None, :num_new]
        window.first_read, window.num_read, window.width = first_slot, 0, num_new
        if any(prompt.num_known for prompt in prompts):
            window.num_read, window.width = len(prompts), max(len(prompt.token_ids) for prompt in prompts)
            starts_B = torch.tensor([prompt.num_known for prompt in prompts], device=self._device)
            window.columns = starts_B[:, None] + window.columns
        # A model may have no position behind the longest prompt.
        self._forward(ids_BS, window.columns.clamp(max=window.width - 1), window.width)

    def _restore(self, prompt: _Prompt, slot: int) -> None:
        """Copy what is known of a prompt into its slot."""
        if prompt.known is None:
            return
        size = prompt.num_known
        saved = iter(prompt.known[0].states)
        for layer in self._layers:
            layer.grow()
            for buffer in layer.buffers():
                buffer[slot, :, :size] = next(saved)[:, :size]

    def _remember(self, row: Row, slot: int) -> None:
        """Keep the keys and values of a finished row: of all its tokens but the last, which was never an input."""
        token_ids = [*row.prompt_ids, *row.token_ids[:-1]]
        size = len(token_ids)
        states = [buffer[slot, :, :size].clone() for layer in self._layers for buffer in layer.buffers()]
        self._prefixes.put(Prefix(token_ids, states))

    def _forward(self, ids_BS: Tensor, positions_BS: Tensor, width: int) -> Tensor:
        """Return the logits of the last column, (B, 1, V)."""
        return self.model(
            input_ids=ids_BS,
            position_ids=positions_BS,
            attention_mask=self._masks(positions_BS, width),
            use_cache=True,
            **self._forward_options,
        ).logits

    def _masks(self, positions_BS: Tensor, width: int) -> Tensor | dict[str, Tensor]:
        """Return the additive attention mask, (B, 1, S, K); by kind of layer where the model mixes kinds."""
        columns_K = self._columns[:width]
        ends_BS1 = positions_BS[:, :, None]
        masks: dict[str, Tensor] = {}
        for kind, size in self._layer_windows.items():
            visible_BSK = columns_K <= ends_BS1
            if size is not None and size < width:
                visible_BSK &= columns_K > ends_BS1 - size
            masks[kind] = torch.where(visible_BSK, self._shown, self._hidden)[:, None]
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _reserve(self, num_columns: int) -> None:
        """Make room for ``num_columns``; the layers grow their buffers when they next write."""
        window = self._window
        if num_columns > window.num_columns:
            window.num_columns = -(-max(num_columns, window.num_columns * 3 // 2) // 64) * 64
            self._columns = torch.arange(window.num_columns, device=self._device)
        if len(self.rows) > window.num_slots:
            window.num_slots = min(self._max_rows, max(8, 2 * len(self.rows)))
            self._slots = torch.arange(window.num_slots, device=self._device)

    def _copy(self, moves: Sequence[tuple[int, int]], num_columns: int) -> None:
        """Copy the first columns of slots into other slots, for pairs (source, target)."""
        if not moves:
            return
        sources, targets = torch.tensor(moves, device=self._device).T
        for layer in self._layers:
            for buffer in layer.buffers():
                buffer[targets, :, :num_columns] = buffer[sources, :, :num_columns]

    def _wipe(self, first_slot: int) -> None:
        """Set the free slots to 0: a NaN left in a hidden column would reach the next row of the slot."""
        for layer in self._layers:
            for buffer in layer.buffers():
                buffer[first_slot:] = 0

    def _forget(self) -> None:
        """Begin with an empty cache."""
        self._prefixes.clear()
        nothing = torch.zeros(0, dtype=torch.int64, device=self._device)
        self._slots = self._columns = nothing
        self._window = _Window(slots=nothing, columns=nothing)
        self._layers = [_SlotLayer(self._window) for _ in range(self._num_layers)]
        self._forward_options[self._cache_name] = Cache(layers=list(self._layers))


def attention_windows(config: Any) -> dict[str, int | None]:
    """Return which kinds of attention a model's layers have, with the width of each kind's window or None.

    Args:
        config: the transformers configuration of the text model.

    Raises:
        ConfigError: a layer has another kind (linear attention, state space), whose state the batch cannot hold.
    """
    size = getattr(config, "sliding_window", None)
    default = ["full_attention" if size is None else "sliding_attention"]
    kinds = set(getattr(config, "layer_types", None) or default)
    other = sorted(kinds - {"full_attention", "sliding_attention"})
    if other:
        raise ConfigError(
            f"the transformers engine cannot serve {config.model_type}: it has {other[0]} layers; "
            "serve the model elsewhere and use inference=external"
        )
    return {kind: size if kind == "sliding_attention" else None for kind in sorted(kinds)}


def prefill_chunks(lengths: Sequence[int], max_tokens: int) -> list[slice]:
    """Return slices of prompts to prefill together: at most ``max_tokens`` and a quarter of padding.

    Args:
        lengths: in ascending order.
        max_tokens: of a chunk, padding included.
    """
    chunks: list[slice] = []
    start = total = 0
    for end, length in enumerate(lengths):
        padded = (end + 1 - start) * length
        if end > start and (padded > max_tokens or padded * 3 > (total + length) * 4):
            chunks.append(slice(start, end))
            start, total = end, 0
        total += length
    chunks.append(slice(start, len(lengths)))
    return chunks


def _grown(buffer: Tensor | None, states: Tensor, window: _Window) -> Tensor:
    """Return the buffer, or a larger copy of it where the window needs one."""
    if buffer is None:
        return states.new_zeros(window.num_slots, states.shape[1], window.num_columns, states.shape[3])
    slots, heads, columns, size = buffer.shape
    if slots >= window.num_slots and columns >= window.num_columns:
        return buffer
    grown = buffer.new_zeros(window.num_slots, heads, window.num_columns, size)
    grown[:slots, :, :columns] = buffer
    return grown
