"""Every kind of export fits the protocol."""

import pytest

from agl.export.chats import ChatExport
from agl.export.origin import Export
from agl.export.policy import PolicyExport
from agl.export.prompts import PromptExport
from agl.export.rollouts import RolloutExport
from agl.export.samples import SampleExport
from agl.export.spans import SpanExport


@pytest.mark.parametrize(
    "kind", [ChatExport, PolicyExport, PromptExport, RolloutExport, SampleExport, SpanExport]
)
def test_every_kind_of_export_fits_the_protocol(kind: type) -> None:
    assert isinstance(kind(), Export)
