"""What flows through the pipeline: rollouts, attempts, spans, resources, workers, runs, queries, samples, weights."""

from agl.types.policy import Lora, Policy
from agl.types.prompt import PromptTemplate
from agl.types.query import (
    AttemptQuery,
    MetricQuery,
    Page,
    ResourcesQuery,
    RolloutQuery,
    RunQuery,
    SpanQuery,
    WorkerQuery,
)
from agl.types.record import Json, Record
from agl.types.resource import LLM, ModelEndpoint, NamedResources, ProxyLLM, Resource, Weights
from agl.types.rollout import (
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    ErrorInfo,
    Mode,
    RecordedRollout,
    RetryCause,
    Rollout,
    RolloutConfig,
    RolloutRequest,
    RolloutStatus,
)
from agl.types.run import MetricPoint, Run, RunStatus
from agl.types.sample import (
    LikelihoodLoss,
    Loss,
    PolicyLoss,
    PreferenceLoss,
    TrainingSample,
    Trajectory,
    Triplet,
    UpdateReport,
)
from agl.types.span import Span, SpanEvent, SpanKind, SpanLink, SpanStatus, SpanStatusCode
from agl.types.weights import PolicyWeights
from agl.types.worker import Worker, WorkerStatus

__all__ = [
    "LLM",
    "Attempt",
    "AttemptQuery",
    "AttemptStatus",
    "AttemptedRollout",
    "ErrorInfo",
    "Json",
    "LikelihoodLoss",
    "Lora",
    "Loss",
    "MetricPoint",
    "MetricQuery",
    "Mode",
    "ModelEndpoint",
    "NamedResources",
    "Page",
    "Policy",
    "PolicyLoss",
    "PolicyWeights",
    "PreferenceLoss",
    "PromptTemplate",
    "ProxyLLM",
    "Record",
    "RecordedRollout",
    "Resource",
    "ResourcesQuery",
    "RetryCause",
    "Rollout",
    "RolloutConfig",
    "RolloutQuery",
    "RolloutRequest",
    "RolloutStatus",
    "Run",
    "RunQuery",
    "RunStatus",
    "Span",
    "SpanEvent",
    "SpanKind",
    "SpanLink",
    "SpanQuery",
    "SpanStatus",
    "SpanStatusCode",
    "TrainingSample",
    "Trajectory",
    "Triplet",
    "UpdateReport",
    "Weights",
    "Worker",
    "WorkerQuery",
    "WorkerStatus",
]
