//! Primitives that PyTorch's decompositions end in (`torch.ops.prims`).

use super::Layout::Places;
use super::Recompute::{Copied, Free};
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("prims._low_memory_max_pool_offsets_to_indices").recompute(Copied),
    operator("prims.add").recompute(Copied),
    operator("prims.amax").recompute(Copied),
    operator("prims.amin").recompute(Copied),
    operator("prims.as_strided").view().layout(Places),
    operator("prims.as_strided_scatter").layout(Places),
    operator("prims.broadcast_in_dim").recompute(Free),
    operator("prims.collapse_view").recompute(Free),
    operator("prims.div").recompute(Copied),
    operator("prims.iota").recompute(Copied),
    operator("prims.mul").recompute(Copied),
    operator("prims.prepare_softmax_online").recompute(Copied),
    operator("prims.split_dim").recompute(Free),
    operator("prims.squeeze").recompute(Free),
    operator("prims.sub").recompute(Copied),
    operator("prims.sum").recompute(Copied),
    operator("prims.transpose").recompute(Free),
    operator("prims.var").recompute(Copied),
    operator("prims.view_of").recompute(Free),
    operator("prims.where").recompute(Copied),
];
