//! Texts that are continued.

use crate::error::GenerateError;
use crate::model::TextModel;
use crate::request::Request;
use crate::slots::{NewToken, SequenceId, Slots};

impl TextModel {
    /// The tokens that follow, one by one.
    ///
    /// # Errors
    /// If a setting is out of its range, or the model does not take the prompt.
    pub fn generate(&self, request: Request) -> Result<Generation, GenerateError> {
        let mut batch = self.batch(1)?;
        batch.add(request)?;
        Ok(Generation::new(batch))
    }

    /// A batch that continues `rows` sequences at once, and keeps others waiting.
    ///
    /// # Errors
    /// If the model takes fewer rows.
    pub fn batch(&self, rows: usize) -> Result<Batch, GenerateError> {
        if rows == 0 || rows > self.most_rows() {
            return Err(GenerateError::Setting {
                name: "rows",
                value: rows.to_string(),
                expected: match self.most_rows() {
                    1 => "1 row, of a model without a range of batches,",
                    _ => "a number from 1 to the largest batch of the file",
                },
            });
        }
        Ok(Batch::new(self.clone(), rows))
    }
}

/// Sequences that a model continues together, in steps of a token: reading the weights once for all of them takes
/// little longer than for one. Sequences may be added and removed between steps; the tokens of each are those that it
/// would have alone.
///
/// ```no_run
/// # use corsac_generate::{Request, TextModel};
/// let model = TextModel::load("gpt2.safetensors")?;
/// let mut batch = model.batch(8)?;
/// let first = batch.add(Request::new([464, 3290]))?;
/// let second = batch.add(Request::new([40]))?;
/// while !batch.is_empty() {
///     for new in batch.step()? {
///         println!("{:?}: {} {:?}", new.sequence, new.token, new.finish);
///     }
/// }
/// # Ok::<(), corsac_generate::GenerateError>(())
/// ```
#[derive(Debug)]
pub struct Batch {
    model: TextModel,
    slots: Slots<TextModel>,
}

impl Batch {
    pub(crate) fn new(model: TextModel, rows: usize) -> Self {
        Self {
            model,
            slots: Slots::new(rows),
        }
    }

    /// Adds a sequence. It begins in the next step, or when another one ends, if there is no free row.
    ///
    /// # Errors
    /// If a setting is out of its range, or the model does not take the prompt.
    pub fn add(&mut self, request: Request) -> Result<SequenceId, GenerateError> {
        self.slots.add(&self.model, request)
    }

    /// Ends a sequence; false if there is none.
    pub fn remove(&mut self, sequence: SequenceId) -> bool {
        self.slots.remove(&self.model, sequence)
    }

    /// Number of sequences that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether all sequences have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Continues each sequence by a token, and begins waiting ones where rows are free: those get their first token.
    ///
    /// # Errors
    /// If running the model fails, for want of memory for instance. Then no sequence has been continued.
    pub fn step(&mut self) -> Result<Vec<NewToken>, GenerateError> {
        self.slots.step(&self.model)
    }
}

/// The tokens of one text.
#[derive(Debug)]
pub struct Generation {
    batch: Batch,
}

impl Generation {
    pub(crate) fn new(batch: Batch) -> Self {
        Self { batch }
    }
}

impl Iterator for Generation {
    type Item = Result<NewToken, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() {
            return None;
        }
        match self.batch.step() {
            Ok(tokens) => tokens.into_iter().next().map(Ok),
            Err(error) => {
                self.batch = Batch::new(self.batch.model.clone(), 1);
                Some(Err(error))
            }
        }
    }
}
