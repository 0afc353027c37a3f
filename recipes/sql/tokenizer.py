"""The starter policy's tokenizer: byte-level BPE in which a name is the same tokens wherever it stands.

Copying a name from the schema or the question into a query is then copying tokens. So a name never carries
a space: the text between two names (` WHERE `, `) FROM `, ` of all `) is a piece of its own, spaces
included, and what is sampled is nearly always what the tokenizer would have made of the text.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .words import QUESTION_WORDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<pad>", "<|im_start|>", "<|im_end|>"

# Every message ends with END and a newline and a sampled answer ends with END, so each prompt begins with all
# tokens of the one before and of its answer.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _split_pattern() -> str:
    words = "|".join(
        sorted({*QUESTION_WORDS, *(word.capitalize() for word in QUESTION_WORDS)}, key=len, reverse=True)
    )
    return "|".join(
        (
            r"(?:system|user|assistant)\n",
            rf" ?(?:(?:{words})(?![A-Za-z_]) ?)+",  # the words of questions, in runs
            r"(?:[ ]|[^\w\s]|[A-Z]{2,}(?![A-Za-z_]))+",  # SQL between two names
            r"_[a-z]+",  # product_id is product and _id
            r"[a-z]+",
            r"[A-Z][a-z]*",
            r"\d{1,2}",
            r"\s",
            r".",
        )
    )


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> "PreTrainedTokenizerFast":
    """Train the tokenizer; the vocabulary has `vocab_size` entries when the texts give that many."""
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_split_pattern()), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return byte_tokenizer(texts, vocab_size, split)


def byte_tokenizer(texts: Iterable[str], vocab_size: int, split: Any) -> "PreTrainedTokenizerFast":
    """Train byte-level BPE within the pieces of a pre-tokenizer: whatever is written, its ids give it back."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = split
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        bos_token=START,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
