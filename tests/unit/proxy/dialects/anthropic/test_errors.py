import anthropic
import orjson
import pytest
from anthropic_exchange import DIALECT, HELLO, client_of

from agl.proxy.dialects.anthropic.errors import error_from_event, object_or_empty, refused


@pytest.mark.parametrize(
    ("status", "kind", "raised"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (402, "billing_error", anthropic.APIStatusError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (404, "not_found_error", anthropic.NotFoundError),
        (409, "conflict_error", anthropic.ConflictError),
        (413, "request_too_large", anthropic.APIStatusError),
        (422, "invalid_request_error", anthropic.UnprocessableEntityError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (502, "api_error", anthropic.InternalServerError),
        (504, "timeout_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ],
)
def test_the_sdk_reads_type_message_and_code_of_every_status(status, kind, raised):
    body = DIALECT.error_body("no more calls", status=status, code="max_calls")
    with pytest.raises(raised) as caught:
        client_of(body, status=status).messages.create(**HELLO)
    error = caught.value
    assert (error.type, error.api_message, error.error_code) == (kind, "no more calls", "max_calls")
    assert error.status_code == status


def test_an_upstreams_error_in_openais_shape_is_worded_in_anthropics():
    theirs = {"error": {"message": "too long", "type": "BadRequestError", "code": "context_length_exceeded"}}
    told = orjson.loads(DIALECT.error_body("the upstream refused", status=400, code="upstream", body=theirs))
    details = {"error_code": "context_length_exceeded"}
    error = {"type": "invalid_request_error", "message": "too long", "details": details}
    assert told == {"type": "error", "error": error}


def test_an_older_vllms_error_without_an_inner_object_keeps_its_message():
    theirs = {"object": "error", "message": "no such model", "type": "NotFoundError", "code": 404}
    told = orjson.loads(DIALECT.error_body("the upstream refused", status=404, code="upstream", body=theirs))
    assert told["error"]["message"] == "no such model"
    assert told["error"]["type"] == "not_found_error"


def test_a_status_alone_is_no_name_of_a_cause():
    assert "details" not in orjson.loads(DIALECT.error_body("no", status=500, code="500"))["error"]


def test_anthropics_own_error_stays_as_it_came():
    theirs = {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "r",
    }
    assert orjson.loads(DIALECT.error_body("x", status=529, code="y", body=theirs)) == theirs


@pytest.mark.parametrize("body", [None, "plain text", [], {"error": "text"}, {"detail": "x"}])
def test_a_body_of_another_shape_leaves_the_proxys_own_message(body):
    told = orjson.loads(DIALECT.error_body("the upstream failed", status=502, code="upstream", body=body))
    assert told["error"]["message"] == "the upstream failed"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("overloaded_error", 529),
        ("rate_limit_error", 429),
        ("invalid_request_error", 400),
        ("new_error", 500),
    ],
)
def test_an_error_event_has_the_status_of_its_type(kind, status):
    data = {"type": "error", "error": {"type": kind, "message": "no"}}
    error = error_from_event(data)
    assert (error.status, error.body) == (status, data)
    assert kind in str(error)


def test_an_error_event_without_an_error_is_a_failed_provider():
    assert error_from_event({"type": "error"}).status == 500


def test_a_refusal_begins_with_the_place():
    error = refused("text", "messages.0.content.1.text")
    assert (str(error), error.status) == ("messages.0.content.1.text: text", 400)
    assert error.param == "messages.0.content.1.text"


def test_what_is_no_object_is_an_empty_one():
    assert object_or_empty([1]) == {}
    assert object_or_empty({"a": 1}) == {"a": 1}
