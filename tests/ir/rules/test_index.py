from __future__ import annotations

from tests.support.rules import refused, typed


def test_gather_puts_the_index_where_the_axis_stood():
    assert typed("gather", "f32[2,9,4]", "i32[5,6]", axis=1) == "f32[2,5,6,4]"
    assert typed("gather", "u8[9]", "i32[]", axis=0) == "u8[]"
    refused("i32 index", "gather", "f32[9]", "u32[5]", axis=0)
    refused("non-empty axis", "gather", "f32[9]", "i32[5]", axis=1)
    refused("non-empty axis", "gather", "f32[0]", "i32[5]", axis=0)


def test_dynamic_slice_takes_one_start_or_one_a_row():
    assert typed("dynamic_slice", "f32[2,9]", "i32[]", axis=0, size=2) == "f32[2,9]"
    assert typed("dynamic_slice", "f32[2,9]", "i32[2]", axis=1, size=3) == "f32[2,3]"
    refused("start of shape", "dynamic_slice", "f32[2,9]", "i32[2]", axis=0, size=1)
    refused("start of shape", "dynamic_slice", "f32[2,9]", "u32[]", axis=1, size=1)
    refused("start of shape", "dynamic_slice", "f32[2,9]", "i32[3]", axis=1, size=1)
    refused("0 <= size <= extent", "dynamic_slice", "f32[2,9]", "i32[]", axis=1, size=10)
    refused("an axis of x", "dynamic_slice", "f32[2,9]", "i32[]", axis=2, size=1)


def test_dynamic_update_slice_keeps_the_type_of_what_it_updates():
    assert typed("dynamic_update_slice", "f32[2,9]", "f32[2,3]", "i32[2]", axis=1) == "f32[2,9]"
    words = "an update like x"
    refused(words, "dynamic_update_slice", "f32[2,9]", "f16[2,3]", "i32[]", axis=1)
    refused(words, "dynamic_update_slice", "f32[2,9]", "f32[1,3]", "i32[]", axis=1)
    refused(words, "dynamic_update_slice", "f32[2,9]", "f32[2,10]", "i32[]", axis=1)
    refused(words, "dynamic_update_slice", "f32[2,9]", "f32[9]", "i32[]", axis=0)


def test_scatter_update_writes_one_row_for_each_index():
    assert typed("scatter_update", "f32[8,2,4]", "f32[3,2,4]", "i32[3]") == "f32[8,2,4]"
    refused("i32 rows of shape [N]", "scatter_update", "f32[8,4]", "f32[3,4]", "i32[3,1]")
    refused("an update of x's dtype", "scatter_update", "f32[8,4]", "f16[3,4]", "i32[3]")
    refused("one row of update", "scatter_update", "f32[8,4]", "f32[2,4]", "i32[3]")
