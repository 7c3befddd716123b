//! Disjoint sets of nodes: union-find.

/// Disjoint sets of small numbers, each with a representative.
///
/// Source: R. E. Tarjan, "Efficiency of a good but not linear set union algorithm", JACM 1975;
/// union by size, paths halved.
#[derive(Clone, Debug, Default)]
pub struct Colours {
    parent: Vec<u32>,
    size: Vec<u32>,
}

impl Colours {
    /// No sets yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a set with one member, and returns the member.
    pub fn add(&mut self) -> u32 {
        let new = u32::try_from(self.parent.len()).unwrap_or(u32::MAX);
        self.parent.push(new);
        self.size.push(1);
        new
    }

    /// The representative of the set of `at`.
    ///
    /// # Panics
    /// If `at` was not returned by [`Colours::add`].
    pub fn find(&mut self, mut at: u32) -> u32 {
        while self.parent[at as usize] != at {
            let grandparent = self.parent[self.parent[at as usize] as usize];
            self.parent[at as usize] = grandparent;
            at = grandparent;
        }
        at
    }

    /// Joins the sets of both, and returns the representative.
    ///
    /// # Panics
    /// As [`Colours::find`].
    pub fn join(&mut self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return a;
        }
        let (large, small) = if self.size[a as usize] < self.size[b as usize] {
            (b, a)
        } else {
            (a, b)
        };
        self.parent[small as usize] = large;
        self.size[large as usize] += self.size[small as usize];
        large
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_sets_are_one_and_others_stay_apart() {
        let mut colours = Colours::new();
        let members: Vec<u32> = (0..6).map(|_| colours.add()).collect();
        colours.join(members[0], members[1]);
        colours.join(members[3], members[4]);
        colours.join(members[1], members[4]);
        let root = colours.find(members[0]);
        for same in [1, 3, 4] {
            assert_eq!(colours.find(members[same]), root);
        }
        assert_ne!(colours.find(members[2]), root);
        assert_ne!(colours.find(members[5]), colours.find(members[2]));
        assert_eq!(colours.join(members[0], members[3]), root);
    }
}
