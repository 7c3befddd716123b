//! The layered layout, one level of modules at a time.
//!
//! Source: K. Sugiyama, S. Tagawa, M. Toda, *Methods for visual understanding of hierarchical
//! system structures*, 1981; the steps are those of E. R. Gansner et al., *A technique for drawing
//! directed graphs*, 1993.
//!
//! 1. [`Level`]s: a module's inside, with nodes, modules and the ports through which values come
//!    and go. A value that several use is one [`Net`].
//! 2. `rank`: the layer of each item.
//! 3. `order`: the place of each item in its layer, so that lines cross little. Nets that go past
//!    layers get a bend in each; one chain of bends serves all users of a value. There are at most
//!    [`BENDS_PER_ITEM`] bends for an item: the longest lines beyond that go straight, below the
//!    nodes, so that time and size stay linear in the graph.
//! 4. [`place`]: coordinates, given sizes. This alone depends on which modules are open, and so the
//!    page does it again (`layout.js`, to the same result) for levels in which a module is open.
//! 5. [`Picture`]: boxes and lines of all levels, in coordinates of the whole.

mod level;
mod order;
mod picture;
mod place;
mod rank;
#[cfg(test)]
mod tests;

pub use level::{Item, Level, Net, Sink, Slot};
pub use picture::{BoxShape, Content, Opening, Picture, Wire, node_size};
pub(crate) use picture::{
    LABEL_MARGIN, LABEL_SIZE, LABEL_WIDTH, LINE_HEIGHT, SUBTITLE_SIZE, TEXT_MARGIN, TITLE_SIZE,
    closed_placement, group_size, group_subtitle, group_title, label_reach, title_width,
};
pub use place::{Placement, Size, place};

use crate::scene::Scene;

/// Bends that a level may have for each of its items, on average.
pub const BENDS_PER_ITEM: usize = 10;

/// The levels of a scene: the whole first, then the inside of each group, in the groups' order.
///
/// ```
/// use corsac_draw::{Scene, layout::levels};
/// use corsac_testkit::chain;
///
/// let levels = levels(&Scene::of(&chain(10)));
/// assert_eq!(levels.len(), 1);
/// assert_eq!(levels[0].layers.len(), 12);
/// ```
#[must_use]
pub fn levels(scene: &Scene) -> Vec<Level> {
    let mut levels = level::split(scene);
    for level in &mut levels {
        let ranks = rank::ranks(scene, level);
        order::fill_layers(level, &ranks);
    }
    levels
}
