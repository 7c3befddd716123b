//! Choices of a fuzzer.

/// Choices, read from bytes; zeros when these are used up.
pub(super) struct Choices<'b>(pub(super) &'b [u8]);

impl Choices<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(super) fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    pub(super) fn rarely(&mut self) -> bool {
        self.below(16) == 15
    }

    /// A small number, or an extreme one.
    pub(super) fn number(&mut self) -> i64 {
        match self.below(4) {
            0 => i64::MAX >> self.below(64),
            1 => i64::MIN >> self.below(64),
            _ => i64::from(self.byte()) - 8,
        }
    }
}
