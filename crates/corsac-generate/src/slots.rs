//! Sequences that are generated together.
//!
//! All rows of the caches are filled up to the same column, `end`, so that one step writes one column: a row of
//! 5 tokens occupies the 5 columns before `end`. A sequence joins when it has been read into caches of its own, of
//! which the columns are copied; the columns of those that are there move if it is longer than all of them.

use std::collections::VecDeque;

use crate::error::GenerateError;
use crate::request::{Finish, Request, Sequence};
use crate::steps::{Step, Steps};

/// Columns are added in groups of so many.
const COLUMNS: usize = 64;

/// A sequence of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// A new token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// The sequence.
    pub sequence: SequenceId,
    /// The token.
    pub token: u32,
    /// Whether, and why, it is the last one.
    pub finish: Option<Finish>,
}

/// A sequence, of which all tokens but the last are in the caches.
#[derive(Debug)]
struct Row {
    id: SequenceId,
    sequence: Sequence,
}

impl Row {
    /// Number of columns that it occupies.
    fn len(&self) -> usize {
        self.sequence.tokens.len() - 1
    }

    fn extend(&mut self, logits: &[f32]) -> NewToken {
        let finish = self.sequence.extend(logits);
        NewToken {
            sequence: self.id,
            token: self.sequence.last(),
            finish,
        }
    }
}

/// The sequences that a model continues.
#[derive(Debug)]
pub(crate) struct Slots<S: Steps> {
    /// With a row for each of `rows`.
    caches: Option<S::Caches>,
    rows: Vec<Option<Row>>,
    /// The first column after the last token.
    end: usize,
    waiting: VecDeque<Row>,
    most: usize,
    next: u64,
}

impl<S: Steps> Slots<S> {
    /// No sequences, of which at most `most` are continued at once.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            caches: None,
            rows: Vec::new(),
            end: 0,
            waiting: VecDeque::new(),
            most: most.max(1),
            next: 0,
        }
    }

    /// Number of sequences that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.running() + self.waiting.len()
    }

    fn running(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    /// Adds a sequence, which waits for a free row.
    pub(crate) fn add(&mut self, steps: &S, request: Request) -> Result<SequenceId, GenerateError> {
        request.check(steps.limits())?;
        let id = SequenceId(self.next);
        self.next += 1;
        let sequence = Sequence::new(request, steps.limits());
        self.waiting.push_back(Row { id, sequence });
        Ok(id)
    }

    /// Ends a sequence; false if there is none.
    pub(crate) fn remove(&mut self, steps: &S, id: SequenceId) -> bool {
        let before = self.len();
        self.waiting.retain(|row| row.id != id);
        for row in &mut self.rows {
            row.take_if(|row| row.id == id);
        }
        self.free_rows(steps);
        self.len() < before
    }

    /// Continues all sequences by a token, and begins those that wait, if there are free rows.
    ///
    /// # Errors
    /// If the model fails. Then nothing has changed but for sequences that have begun.
    pub(crate) fn step(&mut self, steps: &S) -> Result<Vec<NewToken>, GenerateError> {
        let mut found = self.continue_rows(steps)?;
        while self.running() < self.most
            && let Some(mut row) = self.waiting.pop_front()
        {
            match self.read_prompt(steps, &row.sequence.tokens) {
                Ok((free, logits)) => {
                    let token = row.extend(&logits);
                    self.rows[free] = token.finish.is_none().then_some(row);
                    self.free_rows(steps);
                    found.push(token);
                }
                Err(error) => {
                    self.waiting.push_front(row);
                    // Tokens that are there are not to be lost.
                    if found.is_empty() {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Reads a prompt into a free row: the number of this, and the logits after the prompt.
    fn read_prompt(
        &mut self,
        steps: &S,
        tokens: &[u32],
    ) -> Result<(usize, Vec<f32>), GenerateError> {
        let len = tokens.len();
        let (own, logits) = prompt(steps, tokens)?;
        let running = self.running();
        if running == 0 {
            (self.caches, self.end) = (Some(own), len);
            self.rows.resize_with(1, || None);
            return Ok((0, logits));
        }
        let is_full = running == self.rows.len();
        if is_full || len > self.end {
            let rows = (running + usize::from(is_full)).max(self.rows.len());
            let end = self.end.max(len);
            self.arrange(steps, self.rows_for(rows), end, columns(steps, end))?;
        }
        let free = self.rows.iter().position(Option::is_none).unwrap_or(0);
        if let Some(caches) = &mut self.caches {
            steps.copy(&own, 0, 0..len, caches, (free, self.end - len))?;
        }
        Ok((free, logits))
    }

    /// Continues each row by a token.
    fn continue_rows(&mut self, steps: &S) -> Result<Vec<NewToken>, GenerateError> {
        self.make_room(steps)?;
        let Some(caches) = &mut self.caches else {
            return Ok(Vec::new());
        };
        let rows = self.rows.iter().map(Option::as_ref);
        // What free rows read is not used.
        let each = rows.map(|row| row.map_or((0, 0), |row| (row.sequence.last(), row.len())));
        let (tokens, read): (Vec<u32>, Vec<usize>) = each.unzip();
        let step = Step {
            tokens: &tokens,
            read: &read,
            column: self.end,
        };
        let logits = steps.read(caches, &step)?;
        self.end += 1;
        let mut found = Vec::new();
        let each = logits.chunks(steps.limits().vocabulary.max(1));
        for (place, logits) in self.rows.iter_mut().zip(each) {
            let Some(row) = place else { continue };
            let token = row.extend(logits);
            found.push(token);
            if token.finish.is_some() {
                *place = None;
            }
        }
        self.free_rows(steps);
        Ok(found)
    }

    /// Makes sure that there is a column at `end`: if many columns are free at the beginning, rows move there, and
    /// otherwise the caches grow by a quarter.
    fn make_room(&mut self, steps: &S) -> Result<(), GenerateError> {
        let Some(caches) = &self.caches else {
            return Ok(());
        };
        let end = self.end;
        if end < S::columns(caches) {
            return Ok(());
        }
        let longest = self.rows.iter().flatten().map(Row::len).max();
        let longest = longest.unwrap_or(0);
        let is_full = end >= steps.limits().length;
        match is_full || end - longest >= COLUMNS.max(end / 4) {
            true => self.arrange(steps, self.rows.len(), longest, columns(steps, longest)),
            false => self.arrange(steps, self.rows.len(), end, columns(steps, end + end / 4)),
        }
    }

    /// Number of rows of caches for so many sequences.
    fn rows_for(&self, sequences: usize) -> usize {
        sequences.next_power_of_two().min(self.most)
    }

    /// Gives back the memory of rows when half of them are free.
    fn free_rows(&mut self, steps: &S) {
        let running = self.running();
        let rows = self.rows_for(running);
        if running == 0 {
            (self.caches, self.rows, self.end) = (None, Vec::new(), 0);
        } else if let Some(caches) = self.caches.as_ref().filter(|_| rows < self.rows.len()) {
            let columns = S::columns(caches);
            // Without memory for a copy, all goes on as before.
            let _ = self.arrange(steps, rows, self.end, columns);
        }
    }

    /// Copies the sequences to new caches, where their tokens are before column `end`.
    fn arrange(
        &mut self,
        steps: &S,
        rows: usize,
        end: usize,
        columns: usize,
    ) -> Result<(), GenerateError> {
        let mut caches = steps.new_caches(rows, columns)?;
        if let Some(old) = &self.caches {
            let rows = self.rows.iter().enumerate();
            let rows = rows.filter_map(|(number, row)| Some((number, row.as_ref()?.len())));
            for (place, (number, len)) in rows.enumerate() {
                let columns = self.end - len..self.end;
                steps.copy(old, number, columns, &mut caches, (place, end - len))?;
            }
        }
        (self.caches, self.end) = (Some(caches), end);
        self.rows.retain(Option::is_some);
        self.rows.resize_with(rows, || None);
        Ok(())
    }
}

/// Number of columns for `filled` ones and a few more.
fn columns<S: Steps>(steps: &S, filled: usize) -> usize {
    let limits = steps.limits();
    let wanted = (filled + 1).next_multiple_of(COLUMNS);
    wanted.clamp(limits.fewest_columns, limits.length)
}

/// Caches with these tokens, and the logits after the last.
fn prompt<S: Steps>(steps: &S, tokens: &[u32]) -> Result<(S::Caches, Vec<f32>), GenerateError> {
    let mut caches = steps.new_caches(1, columns(steps, tokens.len()))?;
    let mut logits = Vec::new();
    let mut column = 0;
    for part in tokens.chunks(steps.limits().longest_step) {
        let step = Step {
            tokens: part,
            read: &[column],
            column,
        };
        logits = steps.read(&mut caches, &step)?;
        column += part.len();
    }
    Ok((caches, logits))
}

#[cfg(test)]
mod tests;
