import orjson
import pytest

from agl.proxy.refusal import CallRefusedError, error_body


def test_a_refusal_has_openais_shape():
    error = CallRefusedError("n: too many", status=400, code="invalid_value", param="n")
    assert error.error == {
        "error": {
            "message": "n: too many",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (409, "conflict_error"),
        (413, "invalid_request_error"),
        (503, "server_error"),
    ],
)
def test_the_type_follows_from_the_status(status, kind):
    assert orjson.loads(error_body("x", status=status))["error"]["type"] == kind
