from agl.proxy.dialects.responses.nodes import number_of, object_of, objects_of, text_of


def test_what_has_the_shape_is_returned():
    assert object_of({"a": 1}) == {"a": 1}
    assert objects_of([{"a": 1}, {}]) == [{"a": 1}, {}]
    assert text_of("a") == "a"
    assert (number_of(3), number_of(3.7)) == (3, 3)


def test_anything_else_counts_as_empty():
    assert [object_of(value) for value in (None, [], "a", 1)] == [{}] * 4
    assert [objects_of(value) for value in (None, {}, "a", [1, "a", None])] == [[]] * 4
    assert [text_of(value) for value in (None, 1, ["a"], {})] == [""] * 4
    assert [number_of(value) for value in (None, "3", [3], {})] == [0] * 4
