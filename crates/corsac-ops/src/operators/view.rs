//! Views and other operators that only move elements.

use super::Precision::Single;
use super::Recompute::{Copied, Free};
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_conj").recompute(Free),
    operator("_neg_view").recompute(Free),
    operator("_reshape_alias").recompute(Free).moves_elements(),
    operator("_unsafe_view").recompute(Free).moves_elements(),
    operator("adjoint").moves_elements(),
    operator("alias").recompute(Free).partitioner_view().moves_elements(),
    operator("as_strided").recompute(Free).partitioner_view().repeats_elements(),
    operator("atleast_1d").moves_elements(),
    operator("atleast_2d").moves_elements(),
    operator("atleast_3d"),
    operator("broadcast_tensors").recompute(Copied).repeats_elements(),
    operator("broadcast_to").recompute(Copied).moves_elements().repeats_elements(),
    operator("channel_shuffle").modules("ChannelShuffle").moves_elements(),
    operator("chunk").recompute(Free).relative_cost(0.5).moves_elements(),
    operator("col2im"),
    operator("constant_pad_nd").recompute(Copied).moves_elements(),
    operator("contiguous").signature("input memory_format=None").recompute(Copied).moves_elements(),
    operator("detach").recompute(Free).relative_cost(0.5).moves_elements(),
    operator("diag_embed").recompute(Copied),
    operator("diagonal").recompute(Free).moves_elements(),
    operator("expand").signature("input size...").recompute(Free).partitioner_view().relative_cost(0.5)
        .moves_elements().repeats_elements(),
    operator("expand_as").recompute(Free).moves_elements().repeats_elements(),
    operator("flatten").signature("input start_dim=0 end_dim=-1").modules("Flatten")
        .module_call("torch.flatten", "start_dim= end_dim=").relative_cost(0.5).moves_elements(),
    operator("flip").signature("input dims...").recompute(Copied),
    operator("fliplr"),
    operator("flipud"),
    operator("fold").modules("Fold"),
    operator("getattr").relative_cost(0.5).moves_elements(),
    operator("hsplit"),
    operator("Identity").modules("Identity").moves_elements(),
    operator("im2col"),
    operator("imag").recompute(Free),
    operator("moveaxis").moves_elements(),
    operator("movedim").moves_elements(),
    operator("narrow").recompute(Free).relative_cost(0.5).moves_elements(),
    operator("native_channel_shuffle").moves_elements(),
    operator("numpy_T").moves_elements(),
    operator("pad").modules("ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d")
        .module_attributes("pad=padding").moves_elements(),
    operator("permute").signature("input dims...").recompute(Free).partitioner_view().relative_cost(0.5)
        .moves_elements(),
    operator("pixel_shuffle").modules("PixelShuffle").moves_elements(),
    operator("pixel_unshuffle").modules("PixelUnshuffle").moves_elements(),
    operator("pos __pos__").moves_elements(),
    operator("positive").moves_elements(),
    operator("ravel").moves_elements(),
    operator("real").recompute(Free),
    operator("repeat").recompute(Copied).moves_elements(),
    operator("repeat_interleave").moves_elements(),
    operator("requires_grad_"),
    operator("reshape").signature("input shape...").recompute(Free).relative_cost(0.5).moves_elements(),
    operator("reshape_as").moves_elements(),
    operator("roll").recompute(Copied).moves_elements(),
    operator("rot90").moves_elements(),
    operator("select").recompute(Free).partitioner_view().relative_cost(0.5).moves_elements(),
    operator("size").relative_cost(0.5),
    operator("slice").recompute(Free).partitioner_view().relative_cost(0.5).moves_elements(),
    operator("split").recompute(Free).partitioner_view().relative_cost(0.5).moves_elements(),
    operator("split_copy").recompute(Copied),
    operator("split_with_sizes").recompute(Free).moves_elements(),
    operator("split_with_sizes_copy").recompute(Copied),
    operator("squeeze").signature("input dim=None").recompute(Free).partitioner_view().relative_cost(0.5)
        .moves_elements(),
    operator("t").signature("input").inverse(&["torch.t"]).recompute(Free).partitioner_view().relative_cost(0.5)
        .moves_elements(),
    operator("tensor_split").moves_elements(),
    operator("tile").moves_elements(),
    operator("transpose swapaxes swapdims").signature("input dim0 dim1").recompute(Free).relative_cost(0.5)
        .moves_elements(),
    operator("tril").recompute(Copied),
    operator("triu").recompute(Copied),
    operator("unbind").recompute(Free).relative_cost(0.5).moves_elements(),
    operator("unflatten").modules("Unflatten").module_attributes("sizes=unflattened_size").moves_elements(),
    operator("unfold").modules("Unfold").recompute(Free).moves_elements().repeats_elements(),
    operator("unsqueeze").signature("input dim").recompute(Free).partitioner_view().relative_cost(0.5)
        .moves_elements(),
    operator("view").signature("input shape...").recompute(Free).partitioner_view().relative_cost(0.5)
        .moves_elements(),
    operator("view_as").recompute(Free).moves_elements(),
    operator("view_as_complex").autocast(Single).recompute(Free),
    operator("view_as_real").recompute(Free),
    operator("vsplit"),
];
