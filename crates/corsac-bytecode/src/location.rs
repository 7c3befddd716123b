//! Places in source, and the table that code objects keep them in (PEP 657).
//!
//! An entry starts with a byte with its high bit set, a form of 4 bits and the number of code
//! units, less one, of 3 bits. Forms 0 to 9 are a column below 80 and a short span on the line of
//! the entry before; 10 to 12 a span of small columns 0 to 2 lines below; 13 a line without
//! columns; 14 all numbers; 15 none.

use crate::BytecodeError;
use crate::varint::{Reader, push_signed, push_unsigned};

/// The place of an instruction in the source: lines from 1, columns in bytes of UTF-8 from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The first line.
    pub line: Option<i32>,
    /// The last line.
    pub end_line: Option<i32>,
    /// The column in the first line.
    pub column: Option<u32>,
    /// The column in the last line, behind the last character.
    pub end_column: Option<u32>,
}

impl Location {
    /// The location of instructions without a place in the source.
    pub const NONE: Self = Self {
        line: None,
        end_line: None,
        column: None,
        end_column: None,
    };

    /// A line, without columns.
    #[must_use]
    pub const fn line(line: i32) -> Self {
        Self {
            line: Some(line),
            end_line: Some(line),
            ..Self::NONE
        }
    }
}

/// An entry of the table: the location of a number of code units.
pub(crate) struct Span {
    pub(crate) units: usize,
    pub(crate) location: Location,
}

/// Reads the line table of code with `units` code units.
pub(crate) fn decode_locations(
    table: &[u8],
    first_line: i32,
    units: usize,
) -> Result<Vec<Span>, BytecodeError> {
    let mut spans = Vec::new();
    let mut reader = Reader::new(table);
    let mut line = first_line;
    let mut covered = 0;
    while let Some(head) = reader.next() {
        let offset = reader.position() - 1;
        let bad = |problem| BytecodeError::LineTable { offset, problem };
        if head & 0x80 == 0 {
            return Err(bad("expected the first byte of an entry"));
        }
        let cut = || bad("the entry is cut off, or a number is too large");
        let form = head >> 3 & 0xf;
        let count = usize::from(head & 7) + 1;
        let mut step = |delta: i32| {
            line = line.checked_add(delta).ok_or_else(cut)?;
            Ok::<i32, BytecodeError>(line)
        };
        let location = match form {
            15 => Location::NONE,
            14 => {
                let first = step(reader.signed().ok_or_else(cut)?)?;
                let lines = reader.unsigned().and_then(|more| i32::try_from(more).ok());
                let last = lines.and_then(|more| first.checked_add(more));
                let last = last.ok_or_else(cut)?;
                let column = reader.unsigned().ok_or_else(cut)?.checked_sub(1);
                let end_column = reader.unsigned().ok_or_else(cut)?.checked_sub(1);
                Location {
                    line: Some(first),
                    end_line: Some(last),
                    column,
                    end_column,
                }
            }
            13 => Location::line(step(reader.signed().ok_or_else(cut)?)?),
            10..=12 => {
                let at = step(i32::from(form) - 10)?;
                let (column, end) = (reader.plain(), reader.plain());
                let (column, end) = (column.ok_or_else(cut)?, end.ok_or_else(cut)?);
                Location {
                    column: Some(column),
                    end_column: Some(end),
                    ..Location::line(at)
                }
            }
            _ => {
                let byte = reader.plain().ok_or_else(cut)?;
                let column = u32::from(form) << 3 | byte >> 4 & 7;
                Location {
                    column: Some(column),
                    end_column: Some(column + (byte & 15)),
                    ..Location::line(step(0)?)
                }
            }
        };
        covered += count;
        if covered > units {
            return Err(bad("the table is longer than the code"));
        }
        spans.push(Span {
            units: count,
            location,
        });
    }
    if covered < units {
        // Code without a table has no locations.
        if !table.is_empty() {
            return Err(BytecodeError::LineTable {
                offset: table.len(),
                problem: "the table is shorter than the code",
            });
        }
        spans.push(Span {
            units,
            location: Location::NONE,
        });
    }
    Ok(spans)
}

/// Writes the line table.
pub(crate) fn encode_locations(spans: impl IntoIterator<Item = Span>, first_line: i32) -> Vec<u8> {
    let mut table = Vec::new();
    let mut line = first_line;
    for Span { units, location } in spans {
        let mut left = units;
        while left > 0 {
            let count = left.min(8);
            push_entry(&mut table, &mut line, count as u8 - 1, &location);
            left -= count;
        }
    }
    table
}

/// Writes an entry in the form that CPython's compiler chooses.
fn push_entry(table: &mut Vec<u8>, line: &mut i32, count: u8, location: &Location) {
    let mut head = |form: u8| table.push(0x80 | form << 3 | count);
    let Some(first) = location.line else {
        head(15);
        return;
    };
    let delta = i64::from(first) - i64::from(*line);
    *line = first;
    let one_line = location.end_line.is_none_or(|last| last == first);
    match (location.column, location.end_column) {
        (Some(column), Some(end)) if one_line => {
            if delta == 0 && column < 80 && end >= column && end - column < 16 {
                head((column >> 3) as u8);
                table.push(((column & 7) << 4 | (end - column)) as u8);
                return;
            }
            if (0..3).contains(&delta) && column < 128 && end < 128 {
                head(10 + delta as u8);
                table.extend([column as u8, end as u8]);
                return;
            }
        }
        (Some(_), Some(_)) => {}
        _ if one_line => {
            head(13);
            push_signed(table, delta);
            return;
        }
        _ => {}
    }
    head(14);
    push_signed(table, delta);
    let last = location.end_line.unwrap_or(first);
    push_unsigned(table, (i64::from(last) - i64::from(first)).max(0) as u64);
    for column in [location.column, location.end_column] {
        push_unsigned(table, column.map_or(0, |column| u64::from(column) + 1));
    }
}
